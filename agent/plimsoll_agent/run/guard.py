"""Failures of the agent never reach the user's program.

Every function that the user's program calls without knowing is wrapped by `guarded`. The first
failure of each becomes a note in the recording; the program goes on.
"""

from __future__ import annotations

import functools

TYPE_CHECKING = False  # As typing has it, which is not imported for this.
if TYPE_CHECKING:
    from collections.abc import Callable

    from plimsoll_agent.kinds import Note, P, R

_reported: set[str] = set()
_report: Note | None = None


def report_to(function: Note) -> None:
    """`function(code, text)` gets failures from now on."""
    global _report
    _report = function


def failed(where: str, error: BaseException) -> None:
    """An error of the agent in `where`: reports it once, and never raises."""
    if where in _reported:
        return
    _reported.add(where)
    try:
        if _report is not None:
            _report(
                "agent-failed",
                "plimsoll's agent failed in %s (%s: %s); what it records may be incomplete"
                % (where, type(error).__name__, error),
            )
    except Exception:
        pass


def guarded(function: Callable[P, R]) -> Callable[P, R | None]:
    """Calls `function`; an `Exception` in it becomes a note and the result None.

    `SystemExit` passes: that is how `stopping` ends a run.
    """
    where = "%s.%s" % (function.__module__.rpartition(".")[2], function.__name__)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            failed(where, error)
            return None

    return call
