"""Has a script draw its largest number first, where it draws sizes by itself: `size = random.choice(range(320, 641, 32))` before every tenth batch.

No loader shows such sizes, and a run that ends after some steps has seen a few of them. Each line of the user's that draws one of several whole
numbers, or of several tuples of them, with `choice`, `randint` or `randrange` of Python's `random`, or with `choice` or `randint` of NumPy's, draws the
largest in its first turn and in its third one; every other is its own. The generator goes on as without us, and the report names each such line. What a
dataset draws for a sample is left alone: `worst_batches` reads samples. On a phantom only.

A number is called a size once two different ones that the line drew were dimensions of an input of a module, or divide one.
"""

from __future__ import annotations

import os
import random
import sys
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run import frames, nested
from plimsoll_agent.run.after_import import after_import
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from plimsoll_agent.kinds import Library, Torch
    from plimsoll_agent.run.recording import Recording

TURNS = 1, 3
"""Of a line: with others between them, PyTorch's allocator meets the largest size before others and after others."""
MOST_TURNS = 8
"""So many draws of a line are looked for in the inputs of modules."""
MOST_LINES = 8
MOST_VALUES, LARGEST = 10_000, 100_000
"""What is drawn from more, or is larger, is no size: seeds are."""
SMALLEST = 8
"""Smaller numbers are dimensions by chance."""
MOST_CALLS = 64
"""So many calls of modules are looked at for a number."""
_DEEPEST = 12


def apply(torch: Torch, recording: Recording) -> None:
    """Takes its places in the generators."""
    draws = LargestDraws(torch, recording)
    of_python: dict[str, Callable[..., Any]] = {"choice": lambda seq: seq, "randint": lambda a, b: range(a, b + 1), "randrange": range}
    for name, values in of_python.items():
        patch.put(random, name, draws.instead_of(getattr(random, name), values))
        patch.put(random.Random, name, draws.instead_of(getattr(random.Random, name), values, of_method=True))

    def of_numpy(module: Library) -> None:
        patch.put(module, "choice", draws.instead_of(module.choice, lambda a: a))
        patch.put(module, "randint", draws.instead_of(module.randint, lambda low, high: range(low, high)))

    after_import("numpy.random", of_numpy)


class _Line:
    """A line of the user's that draws one of several numbers."""

    def __init__(self) -> None:
        self.turns = self.calls = 0
        self.drawn: tuple[int, ...] = ()
        """What it drew last."""
        self.dimensions: set[tuple[int, ...]] = set()
        """What it drew that an input of a module had."""


class LargestDraws:
    """See the top of this file."""

    def __init__(self, torch: Torch, recording: Recording) -> None:
        self._torch, self._recording = torch, recording
        self._lines: dict[tuple[str, int], _Line] = {}
        self._others: set[tuple[str, int]] = set()
        """Lines that draw something else."""

    def instead_of(self, original: Callable[..., Any], values: Callable[..., Any], of_method: bool = False) -> Callable[..., Any]:
        """`values` has what the arguments let it draw from, and fails for arguments that ask for something else than one number."""

        def draw(*args: Any, **kwargs: Any) -> Any:
            drawn = original(*args, **kwargs)
            if kwargs or not frames.is_users(sys._getframe(1).f_code.co_filename):
                return drawn
            largest = self._largest(sys._getframe(1), args[of_method:], values, drawn)
            return drawn if largest is None else largest

        return draw

    @guarded
    def _largest(self, frame: FrameType, args: Any, values: Callable[..., Any], drawn: Any) -> Any:
        """What the line draws in this turn; None for what it drew."""
        place = frame.f_code.co_filename, frame.f_lineno
        line = self._lines.get(place)
        if place in self._others or line is not None and line.turns == MOST_TURNS or not self._torch.cuda.is_initialized():
            return None
        if line is None and (len(self._lines) == MOST_LINES or self._torch.utils.data.get_worker_info() is not None or _is_of_a_sample(frame)):
            return None
        try:
            sizes = _sizes(values(*args))
        except (TypeError, OverflowError):
            sizes = None  # An array of numbers, or with weights; or from more than Python can count, as seeds are.
        if sizes is None:
            self._others.add(place)
            return None
        most = max(sizes, key=_product)
        if line is None:
            line = self._lines[place] = _Line()
            self._say(place, min(sizes, key=_product), most, line)
        line.turns, line.calls = line.turns + 1, 0
        res = most if line.turns in TURNS else drawn
        line.drawn = _numbers(res)
        return res if isinstance(res, (tuple, list)) else type(drawn)(res)

    def _say(self, place: tuple[str, int], least: Any, most: Any, line: _Line) -> None:
        where, of = "%s:%d" % (os.path.basename(place[0]), place[1]), "%s to %s" % (_shown(least), _shown(most))
        self._recording.note("largest-draws", "%s draws a number (%s): plimsoll has it draw %s in its first and third turn, because it may be a size" % (where, of, _shown(most)))
        torch = self._torch

        @guarded
        def look(module: Any, args: Any) -> None:
            line.calls += 1
            if line.calls <= MOST_CALLS and line.drawn not in line.dimensions:
                dimensions = {int(n) for it in nested.tensors_in(torch, args) for n in it.shape}
                if all(any(_is_of(n, of) for n in dimensions) for of in line.drawn):
                    line.dimensions.add(line.drawn)
            if 1 < len(line.dimensions):
                text = "%s draws a size by itself (%s): plimsoll has it draw %s first" % (where, of, _shown(most))
                self._recording.note("worst-batches", text)
                self._recording.write("worst", how="draw", tensors=[], text=text)
            if 1 < len(line.dimensions) or line.turns == MOST_TURNS and MOST_CALLS <= line.calls:
                handle.remove()

        handle = torch.nn.modules.module.register_module_forward_pre_hook(look)


def _is_of_a_sample(frame: FrameType | None) -> bool:
    for _ in range(_DEEPEST):
        if frame is None:
            return False
        if frame.f_code.co_name == "__getitem__":
            return True
        frame = frame.f_back
    return False


def _sizes(values: Any) -> list[Any] | None:
    """Different whole numbers, or tuples or lists of as many of them; None for anything else. Of a class of the user's nothing is asked."""
    numpy = sys.modules.get("numpy")
    of_numpy = (numpy.ndarray, numpy.integer) if numpy is not None else ((), ())
    if type(values) not in (range, list, tuple) and not (of_numpy[0] and type(values) is of_numpy[0] and values.ndim == 1):
        return None
    if not 1 < len(values) <= MOST_VALUES:
        return None
    sizes = list(values)
    kinds = {len(it) if type(it) in (tuple, list) else 0 for it in sizes}
    numbers = [n for it in sizes for n in (it if type(it) in (tuple, list) else [it])]
    if len(kinds) != 1 or not all((type(n) is int or isinstance(n, of_numpy[1])) and 0 < n <= LARGEST for n in numbers):
        return None
    return sizes if len(set(map(_product, sizes))) > 1 else None


def _numbers(it: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in it) if isinstance(it, (tuple, list)) else (int(it),)


def _product(it: Any) -> int:
    product = 1
    for n in _numbers(it):
        product *= n
    return product


def _is_of(dimension: int, size: int) -> bool:
    return SMALLEST <= size and dimension % size == 0 and dimension != 0


def _shown(it: Any) -> str:
    return "x".join(map(str, _numbers(it)))
