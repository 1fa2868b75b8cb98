"""Has a script draw its largest size first, where it draws sizes by itself: `size = random.choice(range(320, 641, 32))` before every tenth batch.

No loader shows such sizes, and a run that ends after some steps has seen a few of them. Each line of the user's that draws one of several whole
numbers, or of several pairs of them, with Python's or NumPy's generator draws the largest in its first turn and in its third one; every other is its own. The
generator goes on as without us. What a dataset draws for a sample is left alone: `worst_batches` reads samples. On a phantom only.

A number is called a size in the report once a module was called with an input that has it, or a multiple of it, as a dimension.
"""

from __future__ import annotations

import os
import random
import sys
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run import frames, nested
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from plimsoll_agent.kinds import Torch
    from plimsoll_agent.run.recording import Recording

TURNS = 1, 3
"""Of a line: with others between them, PyTorch's allocator meets the largest size before others and after others."""
MOST_LINES = 8
MOST_VALUES, LARGEST = 10_000, 100_000
"""What is drawn from more, or is larger, is no size: seeds are."""
SMALLEST_MULTIPLE = 8
MOST_CALLS = 64
"""So many calls of modules are looked at for a number."""
_DEEPEST = 12


def apply(torch: Torch, recording: Recording) -> None:
    """Takes its places in the generators."""
    draws = LargestDraws(torch, recording)
    numpy = sys.modules.get("numpy.random")
    for owner, name, values in (
        (random, "choice", lambda seq: seq),
        (random, "randint", lambda a, b: range(a, b + 1)),
        (random, "randrange", range),
        (random.Random, "choice", lambda self, seq: seq),
        (random.Random, "randint", lambda self, a, b: range(a, b + 1)),
        (random.Random, "randrange", lambda self, *args: range(*args)),
        (numpy, "choice", lambda a: a),
        (numpy, "randint", range),
    ):
        if hasattr(owner, name):
            patch.put(owner, name, draws.instead_of(getattr(owner, name), values))


class LargestDraws:
    """See the top of this file."""

    def __init__(self, torch: Torch, recording: Recording) -> None:
        self._torch, self._recording = torch, recording
        self._turns: dict[tuple[str, int], int] = {}

    def instead_of(self, original: Callable[..., Any], values: Callable[..., Any]) -> Callable[..., Any]:
        """`values(*args)`: what the arguments let it draw from."""

        def draw(*args: Any, **kwargs: Any) -> Any:
            drawn = original(*args, **kwargs)
            if kwargs or not frames.is_users(sys._getframe(1).f_code.co_filename):
                return drawn
            largest = self._largest(sys._getframe(1), args, values)
            return drawn if largest is None else largest

        return draw

    @guarded
    def _largest(self, frame: FrameType, args: Any, values: Callable[..., Any]) -> Any:
        """What the line draws in this turn; None for what it drew."""
        line = frame.f_code.co_filename, frame.f_lineno
        turn = self._turns.get(line, 0) + 1
        if max(TURNS) < turn or not self._torch.cuda.is_initialized() or self._torch.utils.data.get_worker_info() is not None:
            return None
        if turn == 1 and (len(self._turns) == MOST_LINES or _is_of_a_sample(frame)):
            return None
        sizes = _sizes(values(*args))
        if sizes is None:
            return None
        self._turns[line] = turn
        least, most = min(sizes, key=_product), max(sizes, key=_product)
        if turn == 1:
            self._say_if_it_is_a_size(line, least, most)
        return most if turn in TURNS else None

    def _say_if_it_is_a_size(self, line: tuple[str, int], least: Any, most: Any) -> None:
        torch, calls = self._torch, 0
        wanted = most if isinstance(most, (tuple, list)) else (most,)

        @guarded
        def look(module: Any, args: Any) -> None:
            nonlocal calls
            calls += 1
            dimensions = {int(n) for it in nested.tensors_in(torch, args) for n in it.shape}
            is_it = all(any(_is_of(n, of) for n in dimensions) for of in wanted)
            if is_it:
                text = "%s:%d draws a size by itself (%s to %s): plimsoll has it draw %s first" % (os.path.basename(line[0]), line[1], _shown(least), _shown(most), _shown(most))
                self._recording.note("worst-batches", text)
                self._recording.write("worst", how="draw", tensors=[], text=text)
            if is_it or calls == MOST_CALLS:
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
    """Different whole numbers, or lists of as many of them; None for anything else."""
    if not hasattr(values, "__len__") or not 1 < len(values) <= MOST_VALUES:
        return None
    sizes = list(values)
    kinds = {len(it) if isinstance(it, (tuple, list)) else 0 for it in sizes}
    numbers = [n for it in sizes for n in (it if isinstance(it, (tuple, list)) else [it])]
    if len(kinds) != 1 or not all(hasattr(n, "__index__") and not isinstance(n, bool) and 0 < n <= LARGEST for n in numbers):
        return None
    return sizes if len(set(map(_product, sizes))) > 1 else None


def _product(it: Any) -> int:
    product = 1
    for n in it if isinstance(it, (tuple, list)) else (it,):
        product *= int(n)
    return product


def _is_of(dimension: int, size: int) -> bool:
    return dimension == size or SMALLEST_MULTIPLE <= size < dimension and dimension % size == 0


def _shown(it: Any) -> str:
    return "x".join(map(str, it)) if isinstance(it, (tuple, list)) else str(it)
