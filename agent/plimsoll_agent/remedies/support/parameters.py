"""Checks the parameters that a plan gives a remedy. `remedies.table` has the allowed ones."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from plimsoll_agent.run.refusal import CannotApply

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Named
    from plimsoll_agent.remedies.table import Takes


def check(id: str, given: Named, takes: dict[str, Takes]) -> None:
    """Raises where a parameter in `given` is none of `takes`, has a value that is not allowed, or is missing."""
    for name, value in given.items():
        if name not in takes:
            near = difflib.get_close_matches(name, takes, 1, 0.6)
            known = "did you mean %r?" % near[0] if near else "it has %s" % (", ".join(takes) or "none")
            raise CannotApply("plimsoll: the plan gives %s a parameter %r, which it does not have; %s" % (id, name, known))
        if not _is_allowed(value, takes[name]):
            expected = takes[name].expected
            raise CannotApply("plimsoll: in the plan, %r of %s is %r; expected %s" % (name, id, value, expected))
    for name, it in takes.items():
        if it.is_needed and name not in given:
            raise CannotApply("plimsoll: the plan has %s without %r: %s" % (id, name, it.expected))


def _is_allowed(value: Any, takes: Takes) -> bool:
    if takes.kind == "number":
        return _is_number(value, takes)
    if takes.kind == "numbers":
        return type(value) is list and all(_is_number(it, takes) for it in value)
    return type(value) is str and (value in takes.words if takes.kind == "word" else value != "")


def _is_number(value: Any, takes: Takes) -> bool:
    # `True` is an `int`, too.
    return type(value) is int and takes.least <= value and (takes.most is None or value <= takes.most)
