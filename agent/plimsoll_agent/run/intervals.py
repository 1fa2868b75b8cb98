"""An evaluation every so many steps: finds it in the text of the loops around a step, and has it come soon.

`if step % args.eval_every == 0: evaluate()` comes after as many steps as the script's own setting says. Where that is a variable, it is 1
for a few steps, and then again what it was: the counter of the steps, and all else, is the script's. Where it is a number in the text, the
run goes on to there, if that is not too far.
"""

from __future__ import annotations

import ast
import ctypes
import functools
import os
import sys
from typing import TYPE_CHECKING, Any

from plimsoll_agent.run import extent, frames
from plimsoll_agent.run.guard import guarded
from plimsoll_agent.run.hints import EVALUATION

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from plimsoll_agent.kinds import Line

MOST_LINES = 200
"""Of a branch that are read."""

MOST_LOOPS = 1_000_000
"""A setting above that is no interval."""


class Interval:
    """One such branch, around which the step stands in a loop."""

    def __init__(self, frame: FrameType, branch: ast.If, every: ast.expr, length: int, to_come: int | None) -> None:
        self._code, self._frame, self._every = frame.f_code, id(frame), every
        self._length = length
        self.has_conditions = isinstance(branch.test, ast.BoolOp)
        """Whether its branch waits for something else, too."""
        self.to_come = to_come
        """Turns of its loop until then, if that is known."""
        line = frames.with_text({"file": frame.f_code.co_filename, "line": branch.lineno, "function": frame.f_code.co_name})
        self.line: Line = line
        self._is_short = False

    @guarded
    def shorten(self) -> bool:
        """Has it come in each turn from now on. False where its length is no variable that can be set for that."""
        self._is_short = self._is_short or self._put(1)
        return self._is_short

    @guarded
    def restore(self) -> None:
        """Gives the setting its own value back."""
        if self._is_short:
            self._is_short = False
            self._put(self._length)

    def _put(self, value: int) -> bool:
        # A frame that is held would hold its tensors: it is looked for, and has returned if it is not there.
        frame = next((it for it in _users() if id(it) == self._frame and it.f_code is self._code), None)
        return frame is not None and _assign(frame, self._every, value)


def of_this_step() -> list[Interval]:
    """Those of the loops around the step, the innermost frame's first."""
    return [found for frame in _users() for found in _of(frame)]


def _users() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    for _ in range(extent.MOST_FRAMES):
        if frame is None:
            return
        if frames.is_users(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _of(frame: FrameType) -> list[Interval]:
    here, res = frame.f_lineno, []
    variables = extent.Variables(frame)
    try:
        for branch, loops, remainders in _branches(frame.f_code.co_filename):
            is_around = any(first <= here <= last for first, last in loops)
            if not is_around or branch.lineno <= here <= (branch.end_lineno or branch.lineno):
                continue
            for it in remainders:
                length, now = variables.value(it.right), variables.value(it.left)
                if type(now) not in (int, type(None)):
                    continue  # A text, or what the device would have to say.
                if type(length) is int and 2 <= length <= MOST_LOOPS:
                    # At this moment the step is over, and its number mostly not counted yet.
                    to_come = length - now % length if type(now) is int else None
                    res.append(Interval(frame, branch, it.right, length, to_come))
    finally:
        variables.forget()
    return res


@functools.lru_cache(maxsize=16)
def _branches(file: str) -> list[tuple[ast.If, list[tuple[int, int]], list[ast.BinOp]]]:
    """Branches with a remainder in their condition and an evaluation in their body; the lines of the loops around each."""
    try:
        if extent.MOST_BYTES < os.path.getsize(file):
            return []
        with open(file, encoding="utf-8", errors="replace") as text:
            source = text.read()
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    lines = [it.partition("#")[0] for it in source.split("\n")]
    loops = [(it.lineno, it.end_lineno or it.lineno) for it in ast.walk(tree) if isinstance(it, (ast.For, ast.AsyncFor, ast.While))]
    res = []
    for it in ast.walk(tree):
        if not isinstance(it, ast.If):
            continue
        body = lines[it.body[0].lineno - 1 : min(it.body[-1].end_lineno or 0, it.body[0].lineno + MOST_LINES)]
        found = [each for each in ast.walk(it.test) if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mod)]
        found = [each for each in found if "epoch" not in ast.unparse(each.left).lower()]
        if found and any(map(EVALUATION.search, body)):
            res.append((it, [(first, last) for first, last in loops if first <= it.lineno <= last], found))
    return res


def _assign(frame: FrameType, target: ast.expr, value: int) -> bool:
    """Sets what a name, an attribute or a key of the frame stands for; no code of the script runs for it."""
    if isinstance(target, ast.Name):
        return _assign_name(frame, target.id, value)
    variables = extent.Variables(frame)
    try:
        owner: Any = variables.value(target.value) if isinstance(target, (ast.Attribute, ast.Subscript)) else None
        if isinstance(target, ast.Attribute):
            own = getattr(owner, "__dict__", None)
            key: Any = target.attr
        else:
            own = owner
            key = variables.value(target.slice) if isinstance(target, ast.Subscript) else None
    finally:
        variables.forget()
    if type(own) is not dict or type(own.get(key)) is not int:
        return False
    own[key] = value
    return True


def _assign_name(frame: FrameType, name: str, value: int) -> bool:
    is_function = bool(frame.f_code.co_flags & extent.OPTIMIZED)
    if not is_function or name not in frame.f_code.co_varnames + frame.f_code.co_cellvars + frame.f_code.co_freevars:
        of_frame = frame.f_globals if is_function or name not in frame.f_locals else frame.f_locals
        if name not in of_frame:
            return False
        of_frame[name] = value
        return True
    names = frame.f_locals
    names[name] = value
    if type(names) is dict:  # A copy, before Python 3.13.
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
        names.clear()
    return True
