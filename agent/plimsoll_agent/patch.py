"""The one door by which something of PyTorch's, or of another library, is replaced while a program runs.

What is put in the place of a function carries its name, its documentation and its signature, and says that it is ours. Each
replacement is logged, so that a list can be asked for, and can be taken back where nobody has replaced it since.

What is replaced, by which module and in which kind of run, stands in `tests/agent/replaced.txt`; a test holds the log against it. Who
replaces something guards what it does beside calling the original: see `run.guard`.
"""

from __future__ import annotations

import functools
import sys
import types

TYPE_CHECKING = False  # As typing has it, which is not imported for this.
if TYPE_CHECKING:
    from typing import Any

    from plimsoll_agent.kinds import Function

_MARK = "__plimsoll__"
"""On what replaces: the modules of ours that have replaced it, one after the other."""

_MISSING: Any = object()
_log: list[Replacement] = []


class Replacement:
    """`owner.name` is ours, until it is taken back."""

    __slots__ = ("_before", "_instead", "by", "name", "owner")

    def __init__(self, owner: Any, name: str, instead: Any, by: str) -> None:
        self.owner, self.name, self.by = owner, name, by
        # Of a class what stands in itself: what it inherits comes back when ours goes.
        self._before = vars(owner).get(name, _MISSING) if isinstance(owner, type) else getattr(owner, name, _MISSING)
        self._instead = instead

    @property
    def is_there(self) -> bool:
        """Whether it is still ours, and nobody has wrapped it since."""
        return self._now() is self._instead

    def _now(self) -> Any:
        return vars(self.owner).get(self.name, _MISSING) if isinstance(self.owner, type) else getattr(self.owner, self.name, _MISSING)

    def undo(self) -> bool:
        """What was there before comes back, if it is still ours that is there. Whether it did."""
        if not self.is_there:
            return False
        if self._before is _MISSING:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self._before)
        return True

    def redo(self) -> bool:
        """Ours again, if nobody has come between. Whether it is."""
        if self._now() is not self._before:
            return False
        setattr(self.owner, self.name, self._instead)
        return True

    def __str__(self) -> str:
        return "%s.%s" % (_path(self.owner), self.name)


def replace(owner: Any, name: str, make: Function, once: bool = False) -> Replacement | None:
    """Puts `make(original)` in the place of `owner.name`. With `once` not a second time by the same module, even where somebody has
    wrapped it since; then the answer is None."""
    original, by = getattr(owner, name), _caller()
    if once and by in getattr(original, _MARK, ()):
        return None
    return _put(owner, name, make(original), by)


def put(owner: Any, name: str, instead: Any) -> Replacement:
    """Puts `instead` in the place of `owner.name`, which it knows already."""
    return _put(owner, name, instead, _caller())


def is_ours(function: Any) -> bool:
    """Whether the module that asks has replaced this already."""
    return _caller() in getattr(function, _MARK, ())


def log() -> list[Replacement]:
    """Everything that was replaced in this process, in its order."""
    return list(_log)


def _put(owner: Any, name: str, instead: Any, by: str) -> Replacement:
    original = getattr(owner, name, _MISSING)
    function = getattr(instead, "__func__", instead) if isinstance(instead, (staticmethod, classmethod)) else instead
    if isinstance(function, types.FunctionType) and original is not _MISSING:
        is_like_it = name != "__new__" and callable(original) and not isinstance(original, type)
        if is_like_it and not hasattr(function, "__wrapped__"):
            functools.update_wrapper(function, original)
        setattr(function, _MARK, (*getattr(original, _MARK, ()), by))
    raw = vars(owner).get(name) if isinstance(owner, type) else None
    if function is instead and isinstance(raw, (staticmethod, classmethod)):
        instead = staticmethod(function) if isinstance(raw, staticmethod) else classmethod(function)
    replacement = Replacement(owner, name, instead, by)
    setattr(owner, name, instead)
    _log.append(replacement)
    return replacement


def _caller() -> str:
    """The module that asks, within the agent."""
    return str(sys._getframe(2).f_globals.get("__name__", "")).partition(".")[2]


def _path(owner: Any) -> str:
    if isinstance(owner, types.ModuleType):
        return owner.__name__
    return "%s.%s" % (getattr(owner, "__module__", "?"), getattr(owner, "__qualname__", type(owner).__qualname__))
