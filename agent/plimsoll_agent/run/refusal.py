"""A remedy or an option does not suit the program: the one failure of the agent that the user sees."""

from __future__ import annotations

import contextlib

from plimsoll_agent.run import chain

TYPE_CHECKING = False  # As typing has it, which is not imported for this.
if TYPE_CHECKING:
    from collections.abc import Iterator

    from plimsoll_agent.kinds import Torch


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


@contextlib.contextmanager
def trying(torch: Torch, remedy: str, whom: str) -> Iterator[None]:
    """What fails in this block does not suit `remedy`; `whom` says what it is, and the error stands behind it. Memory that runs out is none of this."""
    try:
        yield
    except (torch.cuda.OutOfMemoryError, CannotApply):
        raise
    except Exception as error:
        raise unsuited(remedy, "%s (%s: %s)" % (whom, type(error).__name__, error)) from error


def is_behind(error: BaseException | None) -> bool:
    """Whether an exception is a refusal, of a remedy or of an option, or came from one: its sentence says all that there is to say."""
    return any(isinstance(it, CannotApply) for it in chain.of(error))


def behind(error: BaseException | None) -> CannotApply | None:
    """The refusal that an exception is, or came from; None if there is none."""
    return next((it for it in chain.of(error) if isinstance(it, CannotApply) and it.remedy is not None), None)
