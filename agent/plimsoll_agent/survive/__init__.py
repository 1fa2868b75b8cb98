"""A step that ran out of memory is done again, so that training goes on (`plimsoll run --survive`).

    survival  where it takes hold (calls of models, losses, backward), and what it tries
    call      one call of a model, which can be made again, or lets go of what it saved
    state     what such a call moves beside what it returns
    draws     a part of a batch draws what the whole would have drawn for it
    graph     what backward reaches from where it begins

What cannot be done again with the same numbers is refused, with a sentence, and the error goes its way.
"""

from __future__ import annotations


class CannotRedo(Exception):
    """Doing it again would change the numbers, or is not known how; the sentence says why."""
