"""Truth values by which a program checks itself: `assert t0 + dt > t0`, `if not valid.all(): raise`. One that nobody computed is
taken to be what lets the program go on, as it does on a GPU.
"""

from __future__ import annotations

import ast
import functools
from typing import TYPE_CHECKING, Any

from plimsoll_agent import source

if TYPE_CHECKING:
    from types import FrameType


def wants_true(frame: FrameType | None) -> bool:
    """Whether the line of `frame` checks something that has to be true; where it has to be false, zero is right."""
    return frame is not None and frame.f_lineno in _lines(frame.f_code.co_filename)


@functools.lru_cache(maxsize=64)
def _lines(file: str) -> frozenset[int]:
    found: set[int] = set()
    for it in ast.walk(source.tree(file)):
        holds = isinstance(it, ast.Assert) and _is_straight(it.test)
        raises = isinstance(it, ast.If) and isinstance(it.body[-1], ast.Raise) and _is_negated(it.test)
        if isinstance(it, (ast.Assert, ast.If)) and (holds or raises):
            found.update(_span(it.test))
    return frozenset(found)


def _span(test: Any) -> range:
    return range(test.lineno, (test.end_lineno or test.lineno) + 1)


def _is_straight(test: Any) -> bool:
    """Whether no part of it is negated: what is read has to be true."""
    return not any(isinstance(it, ast.Not) for it in ast.walk(test))


def _is_negated(test: Any) -> bool:
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and _is_straight(test.operand)
