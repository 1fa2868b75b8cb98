"""Whether the batches of the training are mostly padding: all are made as long as the longest text could be, and no text seen comes near.

Batches of a `DataLoader` lie in the host's memory and have their values. A few are looked at, and only those that a model in training is then given
at that length: a script may cut them itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from plimsoll_agent.run import nested
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Nested, Tensor, Torch
    from plimsoll_agent.run.recording import Recording

MOST_BATCHES = 64
LEAST_LENGTH = 32
"""A row of so few numbers is no text."""
MOST_INSIDE = 0.05
"""So much of what lies before the padding may be the same number: a table of counts is full of zeros, and no text."""


class Text(NamedTuple):
    """Rows of tokens."""

    length: int
    longest: int
    """Without its padding."""
    is_left: bool
    """The padding stands before the text."""


def text_in(torch: Torch, tensor: Tensor) -> Text | None:
    """What is known of these rows; None if these are no tokens."""
    if tensor.is_cuda or tensor.dim() != 2 or tensor.shape[1] < LEAST_LENGTH or not tensor.shape[0] or tensor.is_floating_point() or tensor.dtype == torch.bool:
        return None
    if bool(((tensor == 0) | (tensor == 1)).all()):
        return None  # A mask, or the number of a segment.
    right, left = _longest_of(torch, tensor), _longest_of(torch, tensor.flip(1))
    return Text(int(tensor.shape[1]), min(right, left), left < right)


def _longest_of(torch: Torch, rows: Any) -> int:
    """Without what all rows end with."""
    length = int(rows.shape[1])
    last = rows[:, -1]
    if not bool((last == last[0]).all()):
        return length
    is_text = rows != last[0]
    lengths = (is_text * torch.arange(1, length + 1)).amax(1)
    inside = int(lengths.sum()) - int(is_text.sum())
    return length if MOST_INSIDE * int(lengths.sum()) < inside else int(lengths.max())


class Padding:
    """The length of batches, and of the longest text in them."""

    def __init__(self, torch: Torch, recording: Recording) -> None:
        self._torch, self._recording = torch, recording
        self._taken: tuple[int, int] | None = None
        self._length = self._longest = self._batches = 0
        self._is_over = False

    @guarded
    def taken(self, batch: Nested) -> None:
        """A loader gave this."""
        if self._is_over:
            return
        found = [it for it in (text_in(self._torch, tensor) for tensor in nested.tensors_in(self._torch, batch)) if it is not None]
        lengths = {it.length for it in found}
        self._taken = (lengths.pop(), max(it.longest for it in found)) if len(lengths) == 1 else None

    @guarded
    def given(self, is_training: bool, tensors: list[Tensor]) -> None:
        """A top-level call of a model has these."""
        if self._taken is None or not is_training:
            return
        (length, longest), self._taken = self._taken, None
        if not any(2 <= it.dim() and length in it.shape[1:] for it in tensors):
            return
        is_first = self._batches == 0
        self._batches += 1
        if is_first:
            self._length = length
        is_other = length != self._length
        before, self._longest = self._longest, self._length if is_other else max(self._longest, longest)
        self._is_over = is_other or MOST_BATCHES <= self._batches
        n = self._batches
        if before != self._longest or n & (n - 1) == 0:
            self._recording.write("padding", length=self._length, longest=self._longest, batches=n)
