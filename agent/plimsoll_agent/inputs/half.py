"""Halves the samples of a batch, or the height and width of images, as a person could choose to; on a phantom only.

`PLIMSOLL_HALF` says which. The `DataLoader` makes batches smaller, so that targets get smaller too; without a `DataLoader` the call
of the model makes images smaller. Other inputs stay unchanged.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run import nested

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Arguments, Function, Module, Named, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def apply(torch: Torch, what: str, hooks: Hooks) -> None:
    """Takes its places; `what` is `samples` or `size`."""
    if what == "samples":
        _half_of_samples(torch)
        return
    images = Images(torch)
    images.hold_loaders()
    hooks.around_call(images.around_call)


def _half_of_samples(torch: Torch) -> None:
    from torch.utils.data import BatchSampler, DataLoader

    seen: weakref.WeakSet[Any]
    make, seen = DataLoader.__init__, weakref.WeakSet()

    def __init__(self: Any, dataset: Any, batch_size: int = 1, *args: Any, **kwargs: Any) -> None:
        sampler = kwargs.get("batch_sampler")
        if sampler is None and batch_size is not None:
            batch_size = -(-batch_size // 2)
        elif isinstance(sampler, BatchSampler) and sampler not in seen:
            sampler.batch_size = -(-sampler.batch_size // 2)
        make(self, dataset, batch_size, *args, **kwargs)
        if isinstance(self.batch_sampler, BatchSampler):
            seen.add(self.batch_sampler)  # Who wraps a loader makes another one of its sampler.

    patch.put(DataLoader, "__init__", __init__)


class Images:
    """See the top of this file."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._are_loaded = False

    def hold_loaders(self) -> None:
        from torch.utils.data import dataloader

        iterator_class = dataloader._BaseDataLoaderIter
        original = iterator_class.__next__

        def __next__(iterator: Any) -> Any:
            batch = original(iterator)
            size = self._size(batch)
            self._are_loaded |= size is not None
            return batch if size is None else self._smaller(batch, size)

        patch.put(iterator_class, "__next__", __next__)

    def around_call(self, module: Module, call: Function, args: Arguments, kwargs: Named) -> Any:
        size = None if self._are_loaded else self._size((args, kwargs))
        if size is not None:
            args, kwargs = self._smaller((args, kwargs), size)
        return call(*args, **kwargs)

    def _size(self, batch: Any) -> Any:
        """Height and width of the images in it; None if there are none."""
        images = [it for it in nested.tensors_in(self._torch, batch) if it.dim() >= 4 and it.is_floating_point()]
        sizes = [tuple(it.shape[-2:]) for it in images if min(it.shape[-2:]) > 1]
        return sizes[0] if sizes else None

    def _smaller(self, batch: Any, size: Any) -> Any:
        def cut(tensor: Tensor) -> Any:
            return tensor[..., ::2, ::2].contiguous() if tuple(tensor.shape[-2:]) == size else tensor

        return nested.rebuilt(self._torch, batch, cut)
