"""The one place that replaces functions of PyTorch, or of another library, while a program runs.

The replacement has the name, the documentation and the signature of the function, and a mark that it is plimsoll's. A log has every
replacement; one can be undone if the function was not replaced again since.

`tests/agent/replaced.txt` lists what is replaced, by which module and in which kind of run; a test compares the log with it. A
replacement guards everything that it does beside calling the original: see `run.guard`.
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
"""An attribute of a replacement: the modules of the agent that have replaced the function, in their order."""

_MISSING: Any = object()
_log: list[Replacement] = []


class Replacement:
    """`owner.name` is a replacement, until it is undone."""

    __slots__ = ("_before", "_instead", "by", "name", "owner")

    def __init__(self, owner: Any, name: str, instead: Any, by: str) -> None:
        self.owner, self.name, self.by = owner, name, by
        # Of a class only its own attributes: an inherited one shows again when the replacement goes.
        self._before = vars(owner).get(name, _MISSING) if isinstance(owner, type) else getattr(owner, name, _MISSING)
        self._instead = instead

    @property
    def is_there(self) -> bool:
        """Whether the replacement is still in place, and not wrapped since."""
        return self._now() is self._instead

    def _now(self) -> Any:
        return vars(self.owner).get(self.name, _MISSING) if isinstance(self.owner, type) else getattr(self.owner, self.name, _MISSING)

    def undo(self) -> bool:
        """Restores the original, if the replacement is still in place. Returns whether it did."""
        if not self.is_there:
            return False
        if self._before is _MISSING:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self._before)
        return True

    def redo(self) -> bool:
        """Puts the replacement back, if the original is in place. Returns whether it did."""
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
