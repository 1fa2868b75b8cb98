"""Names the GPU memory that a notebook or an interactive session holds without a variable of the user, and frees it.

The traceback of a failed cell refers to the variables of each function that was running. `sys.last_value`, IPython and the result of the
last cell store that traceback; `Out` and `_` store the outputs of cells. Memory that a variable of the user refers to stays.
"""

from __future__ import annotations

import collections
import gc
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll._printable import printable
from plimsoll._sizes import Size

# Objects that are looked at, at most: a large program has millions.
_MOST = 300_000
_MOST_NAMED = 12
# Less than this without a variable is the workspace of a library.
_LITTLE = 64 << 20

# A storage on a device: where it is, and how large.
_Storages = dict[tuple[int, int], int]


@dataclass(frozen=True)
class Holder:
    """One thing that holds GPU memory."""

    name: str
    """As in a program: `Out[5]`, `hidden in forward, train.py:12`, `model`."""
    size: Size


@dataclass(frozen=True)
class Held:
    """Who holds GPU memory in this Python process."""

    errors: tuple[Holder, ...] = ()
    """Variables of functions in a traceback."""
    outputs: tuple[Holder, ...] = ()
    """Outputs of cells."""
    yours: tuple[Holder, ...] = ()
    """Variables of yours, largest first. They stay."""
    error: str | None = None
    """The type of the stored error: `OutOfMemoryError`."""
    unnamed: Size = Size(0)
    """What is allocated and no variable reaches: tensors saved for backward, workspaces of libraries."""

    @property
    def releasable(self) -> Size:
        """What `release` would free at least; tensors saved for backward come on top."""
        return Size(sum(it.size for it in (*self.errors, *self.outputs)))

    def __str__(self) -> str:
        """A few lines."""
        lines: list[str] = []
        if self.errors:
            lines.append(f"the traceback of the last error ({printable(self.error or '')}) holds {_total(self.errors)}:")
            lines += _shown(self.errors)
        if self.outputs:
            lines.append(f"outputs of cells hold {_total(self.outputs)}:")
            lines += _shown(self.outputs)
        if lines:
            lines.append("plimsoll.release() frees these")
        else:
            lines.append("no traceback and no output of a cell holds GPU memory")
        if self.yours:
            lines.append(f"your variables hold {_total(self.yours)}, which stays:")
            lines += _shown(self.yours)
        if _LITTLE < self.unnamed:
            lines.append(f"{self.unnamed} more are allocated without a variable: tensors saved for the backward pass, and workspaces of libraries")
        return "\n".join(lines)

    __repr__ = __str__


@dataclass(frozen=True)
class Released:
    """What `release` freed."""

    held: Held
    """Who held what before."""
    freed: Size
    """Of what PyTorch had allocated."""
    returned: Size
    """Of what PyTorch had reserved, to the device."""
    allocated: Size
    """What is still allocated."""

    def __str__(self) -> str:
        """A few lines."""
        let_go = [printable(it.name) for it in (*self.held.errors, *self.held.outputs)]
        names = f": {', '.join(let_go[:_MOST_NAMED])}{', ...' if _MOST_NAMED < len(let_go) else ''}" if let_go else ""
        lines = [f"freed {self.freed} and gave {self.returned} back to the device{names}"]
        if self.held.yours and self.allocated:
            lines.append(f"{self.allocated} are still allocated; your variables hold {_total(self.held.yours)}:")
            lines += _shown(self.held.yours)
        return "\n".join(lines)

    __repr__ = __str__


def held() -> Held:
    """Who holds GPU memory in this notebook or session: the last error's traceback, outputs of cells, and your variables."""
    torch = _torch()
    if torch is None:
        return Held()
    return _Session(torch).held()


def release() -> Released:
    """Frees the GPU memory that the last error's traceback and the outputs of cells hold; memory that your variables hold stays.

    `%debug` and `Out[n]` of these no longer work afterwards. Unused memory goes back to the device.
    """
    torch = _torch()
    if torch is None:
        return Released(Held(), Size(0), Size(0), Size(0))
    session = _Session(torch)
    found = session.held()
    before, reserved = _on_all(torch, torch.cuda.memory_allocated), _on_all(torch, torch.cuda.memory_reserved)
    session.let_go()
    del session
    gc.collect()
    torch.cuda.empty_cache()
    after = _on_all(torch, torch.cuda.memory_allocated)
    given_back = max(reserved - _on_all(torch, torch.cuda.memory_reserved), 0)
    return Released(found, Size(max(before - after, 0)), Size(given_back), Size(after))


def _on_all(torch: Any, of: Callable[[int], int]) -> int:
    """Bytes on all devices together."""
    return sum(of(it) for it in range(torch.cuda.device_count()))


def _torch() -> Any:
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return torch


@dataclass
class _Out:
    """An output of a cell."""

    number: int
    value: Any
    storages: _Storages = field(default_factory=dict)
    """What it holds that no variable of the user's does."""


class _Session:
    """The objects of this process as they are now."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        ipython: Any = sys.modules.get("IPython")
        self._shell: Any = ipython.get_ipython() if ipython is not None else None
        main: Mapping[str, Any] = vars(sys.modules["__main__"])
        self._namespace: dict[str, Any] = self._shell.user_ns if self._shell is not None else dict(main)
        self._outputs = list(self._find_outputs())
        self._mine = self._find_mine()
        self._errors = self._find_errors()

    def held(self) -> Held:
        yours: _Storages = {}
        named: list[Holder] = []
        for name, value in self._mine.items():
            found = self._of(value)
            new = {key: size for key, size in found.items() if key not in yours}
            yours.update(new)
            if new:
                named.append(Holder(name, Size(sum(new.values()))))
        counted = set(yours)
        errors: list[Holder] = []
        for error in self._errors:
            for name, value in self._variables(error):
                self._take(name, self._of(value), counted, errors)
        outputs: list[Holder] = []
        for it in self._outputs:
            it.storages = {key: size for key, size in self._of(it.value).items() if key not in yours}
            self._take(f"Out[{it.number}]", it.storages, counted, outputs)
        kind = type(self._errors[0]).__name__ if self._errors else None
        reached = sum(it.size for it in (*errors, *outputs, *named))
        unnamed = Size(max(_on_all(self._torch, self._torch.cuda.memory_allocated) - reached, 0))
        return Held(_largest(errors), _largest(outputs), _largest(named), kind if errors else None, unnamed)

    @staticmethod
    def _take(name: str, found: _Storages, counted: set[tuple[int, int]], into: list[Holder]) -> None:
        new = {key: size for key, size in found.items() if key not in counted}
        counted.update(new)
        if new:
            into.append(Holder(name, Size(sum(new.values()))))

    def let_go(self) -> None:
        """Of errors that no variable of the user's has, and of outputs that hold GPU memory."""
        for error in self._errors:
            traceback.clear_frames(error.__traceback__)
        theirs = {id(it) for it in self._errors}
        for name in ("last_value", "last_exc"):
            if id(getattr(sys, name, None)) in theirs:
                setattr(sys, name, None)
                sys.last_traceback = None
        shell = self._shell
        if shell is not None:
            for formatter in (getattr(shell, name, None) for name in ("InteractiveTB", "SyntaxTB")):
                for name in ("tb", "evalue", "last_syntax_error"):
                    if getattr(formatter, name, None) is not None:
                        setattr(formatter, name, None)
            result = getattr(shell, "last_execution_result", None)
            for name in ("error_in_exec", "error_before_exec"):
                if id(getattr(result, name, None)) in theirs:
                    setattr(result, name, None)
            self._forget_outputs()
        self._errors, self._mine = [], {}

    def _forget_outputs(self) -> None:
        namespace, hook = self._namespace, self._shell.displayhook
        gone = {id(it.value) for it in self._outputs if it.storages}
        result = getattr(self._shell, "last_execution_result", None)
        if result is not None and id(result.result) in gone:
            result.result = None
        for it in self._outputs:
            if it.storages:
                namespace.get("_oh", {}).pop(it.number, None)
                namespace.pop(f"_{it.number}", None)
        # IPython notes what it has put among the user's variables.
        hidden = getattr(self._shell, "user_ns_hidden", {})
        for name in [name for name, value in hidden.items() if id(value) in gone]:
            hidden.pop(name)
        for name in ("_", "__", "___"):
            # What a cell showed, and not what the user has called so.
            if id(getattr(hook, name, None)) in gone:
                if namespace.get(name) is getattr(hook, name):
                    namespace[name] = ""
                setattr(hook, name, "")
        self._outputs = []

    def _find_outputs(self) -> Iterator[_Out]:
        for number, value in list(self._namespace.get("_oh", {}).items()):
            yield _Out(number, value)

    def _find_mine(self) -> dict[str, Any]:
        """The user's variables. What IPython puts among them, and names of outputs, are none."""
        hidden = getattr(self._shell, "user_ns_hidden", {})
        hook = getattr(self._shell, "displayhook", None)
        res = {}
        for name, value in list(self._namespace.items()):
            is_output = name.startswith("_") and name[1:].isdigit() or name in ("_oh", "Out", "_ih", "In", "_dh")
            is_last = name in ("_", "__", "___") and value is getattr(hook, name, None)
            is_hidden = name in hidden and hidden[name] is value
            if not (is_output or is_last or is_hidden or name.startswith("__") and self._shell is None):
                res[name] = value
        return res

    def _find_errors(self) -> list[BaseException]:
        """Errors that the session keeps, and those that they came of; none that a variable of the user's has."""
        shell = self._shell
        result = getattr(shell, "last_execution_result", None)
        found: list[Any] = [getattr(sys, "last_exc", None), getattr(sys, "last_value", None)]
        found += [getattr(result, "error_in_exec", None), getattr(getattr(shell, "InteractiveTB", None), "evalue", None)]
        theirs = {id(it) for it in self._mine.values() if isinstance(it, BaseException)}
        res: list[BaseException] = []
        while found:
            error = found.pop(0)
            if isinstance(error, BaseException) and id(error) not in theirs and all(it is not error for it in res):
                res.append(error)
                found += [error.__cause__, error.__context__]
        return res

    def _variables(self, error: BaseException) -> Iterator[tuple[str, Any]]:
        """The variables of the functions in a traceback, the innermost first."""
        frames = []
        node = error.__traceback__
        while node is not None:
            frames.append((node.tb_frame, node.tb_lineno))
            node = node.tb_next
        for frame, line in reversed(frames):
            if frame.f_globals is self._namespace and frame.f_code.co_name == "<module>":
                break  # The cell itself: its variables are the user's, and what called it is IPython's.
            file = frame.f_code.co_filename.rpartition("/")[2]
            for name, value in list(frame.f_locals.items()):
                yield f"{name} in {frame.f_code.co_name}, {self._cell(frame.f_code.co_filename) or file}:{line}", value

    def _cell(self, filename: str) -> str | None:
        """`In[3]` for the file that IPython gives to a cell."""
        compiler = getattr(self._shell, "compile", None)
        if compiler is None:
            return None
        number = getattr(compiler, "_filename_map", {}).get(filename)
        return f"In[{number}]" if number is not None else None

    def _of(self, value: Any) -> _Storages:
        """Storages on a device that are reached from `value`."""
        torch = self._torch
        res: _Storages = {}
        # All of the session is reached from these.
        seen: set[int] = {id(self._shell), id(self._namespace)}
        waiting: list[Any] = [value]
        while waiting and len(seen) < _MOST:
            it = waiting.pop()
            if id(it) in seen:
                continue
            seen.add(id(it))
            if isinstance(it, torch.Tensor):
                if it.is_cuda:
                    try:
                        storage = it.untyped_storage()
                        res[(it.get_device(), storage.data_ptr())] = storage.nbytes()
                    except (RuntimeError, NotImplementedError):
                        pass  # One without a storage: a subclass of a library.
                if it.is_leaf and it.grad is not None:
                    waiting.append(it.grad)
            else:
                waiting += _parts(it)
        return res


def _parts(it: Any) -> Iterable[Any]:
    """What an object holds, as far as it matters here."""
    if isinstance(it, dict):
        return [*it.keys(), *it.values()]
    if isinstance(it, (list, tuple, set, frozenset, collections.deque)):
        return it
    if isinstance(it, types.FunctionType):
        cells = it.__closure__ or ()
        return [*_contents(cells), *(it.__defaults__ or ()), *(it.__kwdefaults__ or {}).values()]
    if isinstance(it, types.MethodType):
        return (it.__self__,)
    if isinstance(it, types.GeneratorType):
        return list(it.gi_frame.f_locals.values()) if it.gi_frame is not None else ()
    if isinstance(it, BaseException):
        values: list[Any] = [it.args]
        node = it.__traceback__
        while node is not None:
            if node.tb_frame.f_code.co_name != "<module>":
                values += node.tb_frame.f_locals.values()
            node = node.tb_next
        return values
    if isinstance(it, (type, types.ModuleType, str, bytes, int, float)):
        return ()
    return [it.__dict__] if isinstance(getattr(it, "__dict__", None), dict) else ()


def _contents(cells: Iterable[Any]) -> Iterator[Any]:
    for cell in cells:
        try:
            yield cell.cell_contents
        except ValueError:
            pass  # Not filled yet.


def _largest(holders: Iterable[Holder]) -> tuple[Holder, ...]:
    return tuple(sorted(holders, key=lambda it: -it.size))


def _total(holders: Iterable[Holder]) -> Size:
    return Size(sum(it.size for it in holders))


def _shown(holders: tuple[Holder, ...]) -> list[str]:
    lines = [f"  {it.size!s:>10}  {printable(it.name)}" for it in holders[:_MOST_NAMED]]
    if _MOST_NAMED < len(holders):
        lines.append(f"  {_total(holders[_MOST_NAMED:])!s:>10}  in {len(holders) - _MOST_NAMED} more")
    return lines
