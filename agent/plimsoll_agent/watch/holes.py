"""The largest free block of reserved memory on each device."""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Torch

SHARE = 0.001
"""Of the time, at most so much goes into looking."""

SELDOM = 5.0
"""Seconds between two looks, at least."""


class Holes:
    """What was seen at the last look. There are looks only where PyTorch can list its blocks without the history of each (2.11
    can): with the history, a look takes seconds."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        parameters = inspect.signature(torch.cuda.memory_snapshot).parameters
        self._can_look = "include_traces" in parameters
        self._next = 0.0
        self._largest: dict[int, int] = {}

    def look(self) -> None:
        """Now and then: the larger the heap, the less often."""
        began = time.perf_counter()
        if not self._can_look or began < self._next:
            return
        found: dict[int, int]
        self._largest = found = {}
        for segment in self._torch.cuda.memory_snapshot(include_traces=False):
            device = segment["device"]
            for block in segment["blocks"]:
                if block["state"] == "inactive" and found.get(device, 0) < block["size"]:
                    found[device] = block["size"]
            found.setdefault(device, 0)
        ended = time.perf_counter()
        self._next = ended + max(SELDOM, (ended - began) / SHARE)

    def largest(self, device: int) -> int | None:
        """Bytes of the largest on this device; None before the first look."""
        return self._largest.get(device)
