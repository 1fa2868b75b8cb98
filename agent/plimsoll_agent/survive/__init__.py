"""Repeats a call that ran out of memory, so that training goes on (`plimsoll run --survive`).

    survival  where it hooks in (calls of models, losses, backward), and what it tries
    call      one call of a model, which can be repeated, or can free what it saved
    state     what such a call changes beside its result
    draws     a part of a batch draws the random numbers that the whole batch would have drawn for it
    graph     the nodes that backward reaches

Where a call cannot be repeated with the same results, plimsoll prints why and raises the error again.
"""

from __future__ import annotations


class CannotRedo(Exception):
    """Doing it again would change the numbers, or is not known how; the sentence says why."""
