"""Truth values by which a program checks itself: `assert t0 + dt > t0`, `if not valid.all(): raise`. One that nobody computed is
taken to be what lets the program go on, as it does on a GPU. So are the checks that PyTorch makes of an argument's values in C++.
"""

from __future__ import annotations

import ast
import functools
from typing import TYPE_CHECKING, Any

from plimsoll_agent import source

if TYPE_CHECKING:
    from types import FrameType


_CHECKED = frozenset({"normal", "cov"})
"""Functions of torch's that read whether an argument's values are allowed (deviations and weights from 0 on), and raise an error if not."""


def wanted(frame: FrameType | None) -> bool | None:
    """What the line of `frame` has to read for the program to go on, if it checks something."""
    return None if frame is None else _lines(frame.f_code.co_filename).get(frame.f_lineno)


@functools.lru_cache(maxsize=64)
def _lines(file: str) -> dict[int, bool]:
    found: dict[int, bool] = {}
    for it in ast.walk(source.tree(file)):
        if isinstance(it, ast.Assert):
            _note(found, it.test, True)
        elif isinstance(it, ast.If) and isinstance(it.body[-1], ast.Raise):
            _note(found, it.test, False, _is_error(it.body[-1].exc))
        elif isinstance(it, ast.Call) and ast.unparse(it.func).rpartition(".")[2] in _CHECKED:
            found.update(dict.fromkeys(_span(it), True))
    return found


def _note(found: dict[int, bool], test: Any, holds: bool, is_error: bool = True) -> None:
    """What is read on the lines of `test` where it has to come out as `holds`, if that can be told. What is raised may be no error, but the end of a
    loop: then a test that has to fail is not answered."""
    if _is_straight(test):
        if is_error:
            found.update(dict.fromkeys(_span(test), holds))
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and _is_straight(test.operand):
        found.update(dict.fromkeys(_span(test), not holds))


def _is_error(raised: Any) -> bool:
    """Whether its name says so: `raise ValueError(...)`, and no `raise StopIteration`."""
    function = raised.func if isinstance(raised, ast.Call) else raised
    return ast.unparse(function).endswith(("Error", "Exception")) if function is not None else False


def _span(test: Any) -> range:
    return range(test.lineno, (test.end_lineno or test.lineno) + 1)


def _is_straight(test: Any) -> bool:
    """Whether no part of it is negated: what is read has to be true."""
    return not any(isinstance(it, ast.Not) for it in ast.walk(test))
