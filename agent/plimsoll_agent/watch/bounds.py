"""Containers that have a largest length: memory that grows while a queue of fixed length fills is no leak.

A `collections.deque` says how long it may get. Nothing else in Python does, so a list that the script itself keeps short
is only seen once it has stopped growing.
"""

from __future__ import annotations

import collections
import gc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Torch

LOOKED_AT = 4
"""Elements of a queue that are looked into."""


def still_to_come(torch: Torch) -> int:
    """Bytes of device memory that queues of fixed length will hold more than they do now, once they are full."""
    more = 0
    for it in gc.get_objects():
        if type(it) is collections.deque and it.maxlen and 0 < len(it) < it.maxlen:
            sizes = [_bytes(torch, element) for element in list(it)[-LOOKED_AT:]]
            more += (it.maxlen - len(it)) * max(sizes)
    return more


def _bytes(torch: Torch, element: Any, depth: int = 2) -> int:
    if isinstance(element, torch.Tensor):
        return element.untyped_storage().nbytes() if element.is_cuda else 0
    if depth == 0:
        return 0
    if isinstance(element, dict):
        element = list(element.values())
    elif hasattr(element, "__dict__") and not isinstance(element, type):
        element = list(vars(element).values())
    if isinstance(element, (list, tuple)) and len(element) <= 64:
        return sum(_bytes(torch, part, depth - 1) for part in element)
    return 0
