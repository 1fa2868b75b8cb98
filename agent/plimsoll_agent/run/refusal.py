"""A remedy or an option does not suit the program: the one failure of the agent that the user sees."""

from __future__ import annotations


class CannotApply(RuntimeError):
    """The plan does not suit this program; the sentence says why. Names in it are the program's, and are shown on one line as they can be seen."""

    whom: str | None
    remedy: str | None
    remedy = whom = None
    """The remedy that refuses a script or a model, and which one with the reason; None where it is about the whole plan."""

    def __init__(self, sentence: str) -> None:
        super().__init__("".join(it if it.isprintable() else ascii(it)[1:-1] for it in sentence))


def unsuited(remedy: str, whom: str) -> CannotApply:
    """To be raised: `remedy` does not suit `whom`, which says why behind a colon."""
    error = CannotApply("plimsoll: the remedy %s does not suit %s" % (remedy, whom))
    error.remedy, error.whom = remedy, whom
    return error


def behind(error: BaseException | None) -> CannotApply | None:
    """The refusal that an exception is, or came from; None if there is none."""
    seen = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, CannotApply) and error.remedy is not None:
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None
