"""`while` loops of the script that end by values which nobody computed: an adaptive solver, a search, an iteration to a tolerance. Unknown
values are zeros, and a loop that waits for another one never ends, while autograd stores each of its turns. After `TURNS` reads without a
training step such a line gets the opposite: a truth value is true, a number is large, and the next time far below zero.

Where gradients are off, only the numbers of the condition itself count: a generation asks for its end after each token, and the phantom lets
it come to its limit.
"""

from __future__ import annotations

import ast
import ctypes
import functools
import os
import struct
from typing import TYPE_CHECKING, Any

from plimsoll_agent import source

if TYPE_CHECKING:
    from types import FrameType

    from plimsoll_agent.run.recording import Recording

TURNS = 10
_MOST_PLACES = 4096
_LARGE = (struct.pack("<f", 1e30), struct.pack("<f", -1e30))


class Turns:
    """How often lines in such loops have read zeros since the last training step."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], int] = {}
        self._ended: set[tuple[str, int]] = set()

    def step(self) -> None:
        """A training step: what waits for it goes on."""
        self._seen.clear()

    def answer(self, frame: FrameType, at: Any, size: int, has_graph: bool) -> bool:
        """Whether the read of `size` bytes at `at` by the line of `frame` got the opposite; `has_graph` where gradients are on."""
        file, line = frame.f_code.co_filename, frame.f_lineno
        loop, is_condition = _loops(file).get(line, (0, False))
        is_asked = size == 4 and (has_graph or is_condition) or size == 1 and has_graph and ctypes.string_at(at, 1) == b"\0"
        if not loop or not is_asked:
            return False
        if _MOST_PLACES < len(self._seen):
            self._seen.clear()
        key = (id(frame), line)
        reads = self._seen[key] = self._seen.get(key, 0) + 1
        if reads % TURNS:
            return False
        ctypes.memmove(at, b"\1" if size == 1 else _LARGE[reads // TURNS % 2 - 1], size)
        self._ended.add((file, loop))
        return True

    def write(self, recording: Recording) -> None:
        """One sentence a loop."""
        for file, line in sorted(self._ended)[:8]:
            text = "the `while` loop at %s:%d ends by values that a phantom does not compute; plimsoll assumed other values after %d reads: a GPU may take another number of turns, and training stores the graph of each"
            recording.note("loop-turns", text % (os.path.basename(file), line, TURNS))


@functools.lru_cache(maxsize=64)
def _loops(file: str) -> dict[int, tuple[int, bool]]:
    """The line of the innermost `while` around each line that has one, and whether the line is of its condition."""
    found: dict[int, tuple[int, bool]] = {}
    for it in sorted((it for it in ast.walk(source.tree(file)) if isinstance(it, ast.While)), key=lambda loop: loop.lineno):
        for line in range(it.lineno, (it.end_lineno or it.lineno) + 1):
            found[line] = it.lineno, line <= (it.test.end_lineno or it.lineno)
    return found
