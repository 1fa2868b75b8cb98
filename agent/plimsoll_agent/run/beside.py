"""Graphs that are made beside the one that a backward pass goes through, and that none goes through: an entropy or a metric that is only logged, and
was computed with gradients on.

Of the variables that are there when one of the first backward passes begins, those with another graph are remembered, and nothing is kept alive. One
that goes without a pass of those that followed at once having reached it is said.
"""

from __future__ import annotations

import ast
import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent import source
from plimsoll_agent.run import extent, frames
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Container
    from types import FrameType

    from plimsoll_agent.kinds import Named, Torch

MOST = 64
"""Variables that are remembered."""


class Beside:
    """What no backward pass has gone through so far."""

    def __init__(self, torch: Torch) -> None:
        self._torch, self._last = torch, 0
        self._waiting: dict[int, tuple[Any, Named]] = {}
        self._used: dict[int, Any] = {}

    @guarded
    def unused(self, n: int, nodes: Container[int]) -> list[Named]:
        """Those that are gone, as the backward pass with this number begins, which goes through these nodes."""
        if n != self._last + 1:
            self._waiting.clear()  # A pass that was not looked at may have gone through them.
        self._last = n
        gone = [key for key, (variable, _) in self._waiting.items() if variable() is None]
        found = [self._waiting.pop(key)[1] for key in gone]
        for frame in extent.users():
            for name, value in frames.variables(frame).items():
                # What is more than a tensor may run code of the script's.
                if type(value) is self._torch.Tensor and value.grad_fn is not None:
                    self._meet(frame, name, value, id(value.grad_fn) in nodes)
        return found

    def _meet(self, frame: FrameType, name: str, value: Any, is_used: bool) -> None:
        key = id(value)
        used = self._used.get(key)
        if is_used:
            self._used[key] = weakref.ref(value)
            self._waiting.pop(key, None)
        elif (used is None or used() is not value) and key not in self._waiting and len(self._waiting) < MOST:
            place = _assigned(frame, name)
            if place is not None:
                self._waiting[key] = weakref.ref(value), {"name": name, **place}


def _assigned(frame: FrameType, name: str) -> Named | None:
    """The statement that gives a variable its value, and nothing else one: the last before the line that runs."""
    found = [it for it in ast.walk(source.of_function(frame.f_code)) if isinstance(it, ast.Assign) and [_named(target) for target in it.targets] == [name]]
    last = max(found, key=lambda it: (it.lineno < frame.f_lineno, it.lineno), default=None)
    return {"file": frame.f_code.co_filename, "line": last.lineno, "last": last.end_lineno or last.lineno} if last else None


def _named(target: ast.expr) -> str | None:
    return target.id if isinstance(target, ast.Name) else None
