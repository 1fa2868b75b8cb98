"""Makes a part of a batch draw the random numbers that the whole batch would have drawn for it.

A part draws for the whole batch and takes its samples. So the generator goes on as in a call that is made at once, and each
sample gets what it would have got. That a draw's first dimension is the batch is known by its size. Parts of two sizes have to agree on
it, and on the shape of all else: a draw for samples and times in one dimension, or for times first, is refused.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from plimsoll_agent.run import below
from plimsoll_agent.survive import CannotRedo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plimsoll_agent.kinds import Arguments, Named, Nested, Operator, Tensor, Torch

_UNCLEAR = "it draws random numbers, and plimsoll does not know which of them belong to samples"

_IN_PLACE = ("bernoulli_", "normal_", "uniform_", "exponential_", "random_", "log_normal_", "cauchy_", "geometric_")
_LIKE = ("rand_like", "randn_like", "randint_like")
_OF_A_SIZE = ("rand", "randn", "randint")


class CannotDraw(CannotRedo):
    """Parts of a batch cannot draw what the whole would; found before anything was computed of them."""


class Draws:
    """What the parts of one call have drawn so far, to be compared."""

    def __init__(self, torch: Torch) -> None:
        self._torch, self._mode = torch, _mode_of(torch)
        self._of_size: dict[int, list[tuple[bool, tuple[int, ...]]]] = {}  # Of each size of a part, its draws: whether each has samples, and the rest of its shape.

    @contextlib.contextmanager
    def of_part(self, whole: int, start: int, end: int) -> Iterator[None]:
        """Around the call of samples `start..end`."""
        with below.uncompiled(self._torch), self._mode(self, whole, start, end):
            yield

    def compare(self, size: int, drawn: list[tuple[bool, tuple[int, ...]]]) -> None:
        """Raises CannotRedo if parts of another size drew for something else."""
        self._of_size.setdefault(size, drawn)
        if any(it != drawn for it in self._of_size.values()):
            raise CannotRedo(_UNCLEAR)

    def check(self) -> None:
        """Raises CannotRedo if all parts had the same size, so that there was nothing to compare."""
        if len(self._of_size) == 1 and any(self._of_size.values()):
            raise CannotRedo(_UNCLEAR)


@functools.lru_cache(maxsize=1)
def _mode_of(torch: Torch) -> type[Any]:
    from torch.utils._python_dispatch import TorchDispatchMode

    seeded = torch.Tag.nondeterministic_seeded

    class OfTheWhole(TorchDispatchMode):
        is_plimsolls = True

        def __init__(self, draws: Draws, whole: int, start: int, end: int) -> None:
            super().__init__()
            self._draws = draws
            self._whole, self._start, self._size = whole, start, end - start
            self._drawn: list[tuple[bool, tuple[int, ...]]] = []

        def __exit__(self, *raised: Any) -> Any:
            res = super().__exit__(*raised)
            if raised[0] is None:
                self._draws.compare(self._size, self._drawn)
            return res

        def __torch_dispatch__(self, function: Operator, types: Any, args: Arguments = (), kwargs: Named | None = None) -> Any:
            kwargs = kwargs or {}
            if seeded not in function.tags or not _draws(function, args, kwargs):
                return function(*args, **kwargs)
            name = function._schema.name.removeprefix("aten::")
            if name in _IN_PLACE and all(not hasattr(it, "shape") for it in args[1:]):
                (tensor, *others) = args
                if self._has_samples(tensor.shape):
                    self._contiguous(tensor)
                    return tensor.copy_(self._of_part(function(self._larger(tensor), *others, **kwargs)))
                return function(*args, **kwargs)
            if name in _LIKE:
                (tensor, *others) = args
                if self._has_samples(tensor.shape):
                    self._contiguous(torch.empty_like(tensor, device="meta"))
                    return self._of_part(function(self._larger(tensor), *others, **kwargs))
                return function(*args, **kwargs)
            if name in _OF_A_SIZE:
                place = next(i for i, it in enumerate(args) if isinstance(it, (list, tuple)))
                if self._has_samples(args[place]):
                    size = [self._whole, *args[place][1:]]
                    return self._of_part(function(*args[:place], size, *args[place + 1 :], **kwargs))
                return function(*args, **kwargs)
            if name == "native_dropout":
                tensor, p = args[0], args[1]
                if not self._has_samples(tensor.shape):
                    return function(*args, **kwargs)
                self._contiguous(tensor)
                mask = self._of_part(function(self._larger(tensor), *args[1:], **kwargs)[1])
                return tensor * mask * (0.0 if p == 1 else 1 / (1 - p)), mask
            raise CannotDraw("it draws random numbers in a way that parts of the batch cannot repeat (`%s`)" % name)

        def _has_samples(self, shape: Sequence[int]) -> bool:
            res = bool(len(shape)) and shape[0] == self._size
            self._drawn.append((res, tuple(shape[1:] if res else shape)))
            return res

        def _larger(self, tensor: Tensor) -> Tensor:
            return tensor.new_empty([self._whole, *tensor.shape[1:]])

        def _of_part(self, drawn: Nested) -> Nested:
            return drawn.narrow(0, self._start, self._size).clone()

        def _contiguous(self, tensor: Tensor) -> None:
            if not tensor.is_contiguous():
                raise CannotDraw("it draws random numbers for a tensor that is not contiguous")

    return OfTheWhole


def _draws(function: Operator, args: Arguments, kwargs: Named) -> bool:
    """Whether an operation that may draw does: attention has a dropout of 0, mostly."""
    schema = function._schema.arguments
    given = {it.name: args[i] if i < len(args) else kwargs.get(it.name, it.default_value) for i, it in enumerate(schema)}
    for name in ("dropout_p", "dropout"):
        if name in given:
            return bool(given[name])
    if "train" in given and "p" in given:
        return bool(given["p"]) and given["train"] is not False
    return True
