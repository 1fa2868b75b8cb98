"""One device: its free memory, other processes on it, what grows on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plimsoll_agent.watch.trend import Trend

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Torch
    from plimsoll_agent.run.memory import Place
    from plimsoll_agent.watch.trend import Rise

SKIPPED = 2
"""Steps at the beginning that say nothing: gradients and the state of an optimizer are made in them."""

BLOCKS_GROW, SIZES_GROW = 0.2, 0.3
"""The share of free memory that has to be used up before an alarm says that memory grows: where there are more and more blocks; and
where there are as many as before, only larger, as with batches that are sorted by their length."""

NEARLY_ALL = 0.85
"""The share of the available memory that steps need before an alarm says that they need more and more."""

NEEDS_MORE = 2.5
"""If the most that a step takes rises by so many times what stays of it, then its batches may grow."""

LITTLE_OF_IT = 40
"""What lives is so little of what steps need more that it does not explain it: the last outputs of batches that grow."""

MORE, SLACK = 1.02, 40 << 20
"""What may be reserved over what is expected: as with the first step of a plan."""

A_NEIGHBOUR, MOST_OF_IT = 256 << 20, 0.75
"""Bytes that others have to take before they are spoken of, and the share of what was free that is most of it."""

LITTLE = 0.04
"""So little of a device left is little for anybody."""

SPLIT = 0.1
"""The share of the available memory in parts of segments that are free, and too small, at which giving memory back to the driver shows
fragmentation."""


class Device:
    """What is known of one device of this process."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.lives, self.reserved_trend, self.needs = Trend(SKIPPED), Trend(SKIPPED), Trend(SKIPPED)
        # What the driver and the allocator say, once they were asked.
        self.limit = self.total = self.free = self.in_reach = self.others = self.free_at_first = 0
        self.others_at_first: int | None = None
        self.split = self.retries = self.ooms = 0
        self.allocated = self.reserved = self.active = self.peak_allocated = self.peak_reserved = 0
        self.retries_before: int | None = None

    def ask(self, torch: Torch) -> None:
        """Asks the driver and the allocator. Not in each step."""
        c = torch._C
        stats = c._cuda_memoryStats(self.index)
        self.split = stats["inactive_split_bytes"]["all"]["current"]
        self.active = stats["active_bytes"]["all"]["current"]
        self.retries, self.ooms = stats["num_alloc_retries"], stats["num_ooms"]
        reserved = stats["reserved_bytes"]["all"]["current"]
        self.free, self.total = torch.cuda.mem_get_info(self.index)
        share = c._cuda_getMemoryFraction(self.index) if hasattr(c, "_cuda_getMemoryFraction") else 1.0
        self.limit = int(min(max(share, 0.0), 1.0) * self.total)
        # What we have, and what is free.
        self.in_reach = reserved + self.free
        # What others hold, with our own context and libraries, which stay.
        self.others = self.total - self.free - reserved

    @property
    def room_is_unknown(self) -> bool:
        """Whether this is the first question."""
        return self.total == 0

    @property
    def room(self) -> int:
        """The most that can be reserved: what PyTorch may take, or what is free beside what it has."""
        return min(self.limit, self.in_reach)

    def step_ended(self, step: int, place: Place) -> bool:
        """Takes in the counters at the end of a step. True if it is time to look for what grows."""
        i = self.index
        self.allocated, self.reserved = place.allocated[i], place.reserved[i]
        self.peak_allocated, self.peak_reserved = place.peaks[i]
        count = place.live[i][0]
        is_time = self.lives.add(step, self.allocated, count, self.peak_allocated)
        self.reserved_trend.add(step, self.reserved, count, self.peak_allocated)
        self.needs.add(step, self.peak_allocated, count, self.peak_allocated)
        return is_time

    def growth(self) -> Rise | None:
        """The rise of what lives, if it is one that goes on; None. One that larger batches may explain is marked so: a tensor that
        is joined with more and more needs more in each step, too."""
        found = self.lives.rise(lambda peak: BLOCKS_GROW * max(self.room - peak, 0), self.room)
        if found is None:
            return self._growth_that_steps_need()
        may_be_batches = NEEDS_MORE * found.amount < found.needed
        if found.blocks <= 0 or may_be_batches:
            found = self.lives.rise(lambda peak: SIZES_GROW * max(self.room - peak, 0), self.room)
        if found is not None:
            found.may_be_batches = may_be_batches
        return found

    def _growth_that_steps_need(self) -> Rise | None:
        """The same where what lives is little beside what steps need for it: a bank of features that the loss compares with all of."""
        needs = self.needs.rise(lambda peak: SIZES_GROW * max(self.room - peak, 0), self.room)
        found = self.lives.rise(lambda _: 0, self.room) if needs is not None else None
        if needs is None or found is None or found.per_step * LITTLE_OF_IT < needs.per_step:
            return None
        found.may_be_batches = True
        return found

    def pace(self) -> int | None:
        """Bytes more that live after each step; 0 if it is no more, None while that is not known."""
        return self.lives.pace()

    def runs_out_in(self, rise: Rise) -> int:
        """Steps from now until a step does not fit."""
        per_step = max(rise.per_step, rise.needed / max(rise.steps, 1))
        return int(max(self.room - self.peak_allocated, 0) / per_step)

    def drift(self) -> Rise | None:
        """The rise of what steps need at most, if it is one that goes on and will soon be all there is; None."""
        if self.peak_allocated < NEARLY_ALL * self.room:
            return None
        return self.needs.rise(lambda peak: SIZES_GROW * max(self.room - peak, 0), self.room)

    def fragmentation(self) -> int | None:
        """The bytes that are free and of no use, when that is why memory was given back or is reserved more and more."""
        before, self.retries_before = self.retries_before, self.retries
        if before is not None and before < self.retries and SPLIT * self.room <= self.split:
            return self.split
        rise = self.reserved_trend.rise(lambda peak: SIZES_GROW * max(self.room - peak, 0), self.room)
        if rise is not None and rise.needed <= 0.2 * rise.amount:
            return self.reserved - self.allocated
        return None

    def over(self, expected: int | None) -> bool:
        """Whether more is reserved than was expected."""
        return expected is not None and expected * MORE + SLACK < self.peak_reserved

    def neighbour(self, expected: int | None) -> int | None:
        """What others took since the first steps, if too little is left for what this run takes; None."""
        if self.others_at_first is None:
            self.others_at_first, self.free_at_first = self.others, self.free
            return None
        taken = self.others - self.others_at_first
        if taken < A_NEIGHBOUR:
            self.others_at_first = min(self.others_at_first, self.others)
            return None
        wanted = max(expected or 0, self.peak_reserved) - self.reserved
        if self.limit - self.reserved <= self.free:
            return None  # What others left is more than PyTorch may take.
        is_most = MOST_OF_IT * self.free_at_first <= taken
        is_little = self.free < max(wanted, LITTLE * self.total)
        return taken if is_most or is_little else None
