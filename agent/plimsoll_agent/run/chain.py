"""What an exception came from: frameworks raise errors of their own where they caught another."""

from __future__ import annotations

import builtins

TYPE_CHECKING = False  # As typing has it, which is not imported for this.
if TYPE_CHECKING:
    from collections.abc import Iterator

_GROUP: type[BaseException] | tuple[()] = getattr(builtins, "BaseExceptionGroup", ())
"""From Python 3.11 on."""


def of(error: BaseException | None) -> Iterator[BaseException]:
    """The exception, what it was raised from or while it was handled (`from None` hides it from people only), and the parts of groups; each once."""
    seen: set[int] = set()
    left = [error]
    while left:
        it = left.pop()
        if it is None or id(it) in seen:
            continue
        seen.add(id(it))
        yield it
        parts = getattr(it, "exceptions", ()) if isinstance(it, _GROUP) else ()
        left += [*reversed(parts), it.__context__, it.__cause__]
