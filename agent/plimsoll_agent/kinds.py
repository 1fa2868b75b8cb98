"""Names for the types that are passed around, for annotations. Nothing imports this while a program runs.

PyTorch is whatever the user has, and is reached as an object: its own types are no help here, and reading them takes a type checker
minutes. So what comes from it has a name, by which a reader knows what it is, and behind the name is `Any`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeAlias, TypedDict, TypeVar

Torch: TypeAlias = Any
"""The module `torch`, or one of its modules."""
Library: TypeAlias = Any
"""Another module that the script has imported, in which something is replaced."""
Tensor: TypeAlias = Any
Module: TypeAlias = Any
"""An `nn.Module`."""
Optimizer: TypeAlias = Any
Operator: TypeAlias = Any
"""What a dispatch mode is given as the function: `torch.ops.aten.add.Tensor`."""
Nested: TypeAlias = Any
"""What a call is given or returns: tensors, in containers or not."""

Arguments: TypeAlias = tuple[Any, ...]
Named: TypeAlias = dict[str, Any]
Function: TypeAlias = Callable[..., Any]
"""A function that is replaced, or the one that replaces it."""
Parameters: TypeAlias = Named
"""The parameters of a remedy in a plan."""
Backward: TypeAlias = Callable[[Any, Any], Any]
"""A backward pass from tensors and their gradients."""
Around: TypeAlias = Callable[[Any, Function, Arguments, Named], Any]
"""`around(module, call, args, kwargs)` runs in the place of `call(*args, **kwargs)`."""
Bounds: TypeAlias = list[tuple[int, int]]
"""Where the parts of a batch begin and end."""


class Note(Protocol):
    """Writes a sentence for people, once."""

    def __call__(self, code: str, text: str) -> object: ...


class Writes(Protocol):
    """Takes lines: a recording, or what stands in its place."""

    def write(self, kind: str, **fields: Any) -> None: ...


class Frame(TypedDict):
    """A frame of a stack as a recording has it."""

    file: str
    line: int
    function: str


class Line(Frame):
    """One with its source text."""

    text: str


class Described(TypedDict):
    """An exception as a recording has it."""

    type: str
    message: str
    user_frame: Line | None


class Follower(Protocol):
    """Gets each call of a module on one thread."""

    def enter(self, module: Module, depth: int) -> None: ...

    def leave(self, depth: int) -> None: ...


class OfPhantom(Protocol):
    """What the end of a process asks of the phantom."""

    def stop_watching(self) -> None: ...

    def write_reads(self) -> None: ...

    def write_report(self) -> None: ...


Counts: TypeAlias = dict[tuple[str, str, float, float], int]
"""How often there was an operation, by its kind, dtype, arithmetic and bytes."""

Packed: TypeAlias = tuple[Any, Tensor, Any]
"""A tensor in host memory: its device, its host copy and its size; (None, tensor, None) of one that stays."""

P = ParamSpec("P")
R = TypeVar("R")
"""What a function that is wrapped is given and returns."""

E = TypeVar("E", bound=BaseException)
