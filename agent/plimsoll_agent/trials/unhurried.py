"""`PLIMSOLL_UNHURRIED`: workers of a `DataLoader` make no batch before the program waits for one.

A run of a search is over after a few steps, and what its workers made ahead is thrown away: most of what such a run takes of the
processor, where batches are dear. So what they are told to make is kept back until the program waits for a batch that they were
not told of; then as many are told as there are workers, or processors.

What each worker makes, in which order and from which random numbers, is as before, and the sampler is asked when it always is.
"""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Torch


def install(torch: Torch) -> None:
    """From now on, in this process."""
    iterator = torch.utils.data.dataloader._MultiProcessingDataLoaderIter
    reset, get_data = iterator._reset, iterator._get_data

    def _reset(self: Any, loader: Any, first_iter: bool = False) -> Any:
        orders = getattr(self, "_plimsoll_orders", None)
        if orders is not None:
            orders.all()
        elif first_iter and getattr(self, "_in_order", True) and not self._timeout:
            orders = self._plimsoll_orders = _Orders(len(self._index_queues))
            self._index_queues = [_Queue(it, orders) for it in self._index_queues]
        return reset(self, loader, first_iter)

    def _get_data(self: Any) -> Any:
        orders = getattr(self, "_plimsoll_orders", None)
        if orders is not None:
            orders.wanted(self._rcvd_idx)
        return get_data(self)

    patch.put(iterator, "_reset", _reset)
    patch.put(iterator, "_get_data", _get_data)


class _Orders:
    """The batches that workers have to make and that are not sent to them yet, in the order in which they are wanted."""

    def __init__(self, n_workers: int) -> None:
        self._at_once = max(1, min(n_workers, len(os.sched_getaffinity(0))))
        self._kept: Any = deque()
        self._told = 0
        """The batches before this one were sent."""

    def keep(self, queue: Any, order: Any) -> None:
        self._kept.append((queue, order))

    def wanted(self, batch: Any) -> None:
        """The program waits for the batch of this number."""
        if self._told <= batch:
            for _ in range(min(self._at_once, len(self._kept))):
                self._tell()

    def all(self) -> None:
        """An epoch ends before its batches do, and workers that stay make them all the same."""
        while self._kept:
            self._tell()
        self._told = 0

    def _tell(self) -> None:
        queue, order = self._kept.popleft()
        self._told = order[0] + 1
        queue.put(order)


class _Queue:
    """A worker's queue, past which go only those that it is told of; all else goes straight through."""

    def __init__(self, queue: Any, orders: Any) -> None:
        self._queue, self._orders = queue, orders

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def put(self, order: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(order, tuple):
            self._orders.keep(self._queue, order)
        else:
            self._queue.put(order, *args, **kwargs)
