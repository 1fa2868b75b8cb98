"""What models are given: whether an evaluation's batch is much larger than any of the training.

Only shapes are read. A model of the training is compared with itself.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Module, Tensor
    from plimsoll_agent.run.recording import Recording

MUCH = 4
"""So many times the largest batch of the training."""


class BatchSizes:
    """The largest tensor that each model was given in training, and the largest in an evaluation."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._largest: weakref.WeakKeyDictionary[Module, list[tuple[int, int]]] = weakref.WeakKeyDictionary()

    def given(self, model: Module, is_training: bool, tensors: list[Tensor]) -> None:
        """A top-level call of `model`. It is written down once an evaluation has much more than the training, and when it doubles."""
        if not tensors:
            return
        elements, rows = max((it.numel(), it.shape[0] if it.dim() else 1) for it in tensors)
        known = self._largest.setdefault(model, [(0, 0), (0, 0)])
        kind = 0 if is_training else 1
        # A larger batch of an evaluation is told before it runs out.
        if known[kind][0] * (1 if is_training else 2) < elements or known[kind][0] < elements and not known[0][0]:
            known[kind] = (elements, rows)
            in_training, in_evaluation = known
            if in_training[0] and MUCH * in_training[0] <= in_evaluation[0]:
                self._recording.write(
                    "large_batch",
                    rows_in_training=in_training[1], elements_in_training=in_training[0], rows=in_evaluation[1], elements=in_evaluation[0],
                )
