"""Batches of a `DataLoader` without the places that are padding in all of their texts: what `--worst-seq text` asks for.

The script is the same, and so is all that it computes for each place: what this run needs less than another one is what padding takes. Only tensors that
have the length of the texts are cut: whole numbers and masks at each such dimension but the first, and other numbers where they are a mask of
pairs. On a phantom only: a model that needs one length says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.inputs.padding import text_in
from plimsoll_agent.run import nested
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Tensor, Torch
    from plimsoll_agent.run.recording import Recording

_DEEPEST = 6


def apply(torch: Torch, recording: Recording) -> None:
    """Takes its places in PyTorch's loaders."""
    from torch.utils.data import dataloader

    unpadded = Unpadded(torch, recording)
    for kind in (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter):
        patch.put(kind, "_next_data", unpadded.around(kind._next_data))


class Unpadded:
    """Cuts what all texts of a batch end, or begin, with."""

    def __init__(self, torch: Torch, recording: Recording) -> None:
        self._torch, self._recording = torch, recording
        self._cut: tuple[int, int] | None = None

    def around(self, take: Any) -> Any:
        """In the place of a loader's method that gives the next batch."""

        def _next_data(iterator: Any) -> Any:
            batch = take(iterator)
            shorter = self._shorter(batch)
            return batch if shorter is None else shorter

        return _next_data

    @guarded
    def _shorter(self, batch: Any) -> Any:
        texts = [it for it in (text_in(self._torch, tensor) for tensor in nested.tensors_in(self._torch, batch)) if it is not None]
        if not texts or len({it.length for it in texts}) != 1:
            return None
        length, longest, is_left = texts[0].length, max(it.longest for it in texts), texts[0].is_left
        if length <= longest or not longest:
            return None
        if self._cut is None or self._cut[1] < longest:
            self._cut = length, longest
            self._recording.note("unpadded", "--worst-seq text cut the padding of batches: %d of %d places remain at most" % (longest, length))
        return self._map(batch, length, (length - longest, length) if is_left else (0, longest), _DEEPEST)

    def _map(self, value: Any, length: int, kept: tuple[int, int], depth: int) -> Any:
        if isinstance(value, self._torch.Tensor):
            return self._of(value, length, kept)
        if not depth:
            return value
        if isinstance(value, dict) or hasattr(value, "data") and hasattr(value, "items"):
            for key, it in list(value.items()):
                value[key] = self._map(it, length, kept, depth - 1)
            return value
        if type(value) in (list, tuple):
            return type(value)(self._map(it, length, kept, depth - 1) for it in value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self._map(it, length, kept, depth - 1) for it in value))
        return value

    def _of(self, tensor: Tensor, length: int, kept: tuple[int, int]) -> Tensor:
        is_of_pairs = 3 <= tensor.dim() and tensor.shape[-1] == tensor.shape[-2] == length
        if tensor.is_floating_point() and not is_of_pairs:
            return tensor
        for dimension in range(1, tensor.dim()):
            if tensor.shape[dimension] == length:
                tensor = tensor.narrow(dimension, kept[0], kept[1] - kept[0])
        return tensor
