"""Decides whether the memory that is live at the ends of steps rises, and goes on rising.

What counts is the floor: the least that lived at the end of any of some steps. Batches of different lengths, an
evaluation every so often, a checkpoint that is written move what lives above the floor, and not the floor. A leak moves
the floor, by as much in one part of the run as in the next. What starts late and stays (the state of an optimizer, an
average of weights) moves it once. What fills up (a cache of shapes) moves it less and less.

Steps are kept in buckets, each twice as long once there are many, so that a run of any length is a hundred numbers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 96
"""Buckets; half as many are left when neighbours are joined."""

BLOCKS = 6
"""Parts of a stretch of steps whose floors are compared."""

FEWEST = 3 * BLOCKS
"""Buckets of a stretch that is compared by blocks."""

AT_ONCE = 9
"""Steps that show a fast growth, if each of them rises."""

QUIET = 12
"""Steps without a rise that say nothing."""

GOES_ON, EVEN = 0.6, 0.25
"""The last rise, and the least one, from block to block, as shares of the largest."""

SLOWS_DOWN = 0.95
"""Where each rise is so much of the one before, they come to an end, and their sum can be computed."""


class Rise:
    """What rises since `first`, a step: `amount` bytes by now, `per_step` of them in each."""

    __slots__ = ("first", "steps", "amount", "per_step", "blocks", "needed", "floor", "to_come", "may_be_batches")

    def __init__(self, first: int, steps: int, per_step: float, blocks: int, needed: int, floor: int, to_come: float) -> None:
        self.first, self.steps, self.per_step = first, steps, per_step
        self.amount = int(per_step * steps)
        # How many blocks more there are, and by how much the most that a step took rose meanwhile.
        self.blocks, self.needed = blocks, needed
        self.floor = floor
        # Whether batches that grow would look the same.
        self.may_be_batches = False
        # What it will come to, if it slows down; else more than anybody has.
        self.to_come = to_come


class _Bucket:
    __slots__ = ("first", "floor", "count", "peak")

    def __init__(self, first: int, floor: int, count: int, peak: int) -> None:
        self.first, self.floor, self.count, self.peak = first, floor, count, peak

    def take(self, floor: int, count: int, peak: int) -> None:
        if floor < self.floor:
            self.floor = floor
        if count < self.count:
            self.count = count
        if self.peak < peak:
            self.peak = peak


class Trend:
    """The ends of a run's steps, and what rises in them."""

    def __init__(self, skip: int) -> None:
        """`skip`: steps at the beginning that say nothing."""
        self._skip = skip
        self._width = 1
        self._buckets: list[_Bucket] = []
        self._open: _Bucket | None
        self._open, self._n_open = None, 0
        self._step = 0
        # The last step after which more lived than ever before, and the longest time between two such.
        self._gaps: list[int]
        self._most, self._rose_at, self._gaps = 0, 0, []

    def add(self, step: int, lives: int, count: int, peak: int) -> bool:
        """Takes in the end of one more step: bytes and blocks that live, and the most bytes so far. True when a
        bucket is full: then it is time to look."""
        if step <= self._skip:
            return False
        self._step = step
        if self._most < lives:
            self._most = lives
            self._gaps = [*self._gaps[-15:], step - self._rose_at]
            self._rose_at = step
        if self._open is None:
            self._open = _Bucket(step, lives, count, peak)
        else:
            self._open.take(lives, count, peak)
        self._n_open += 1
        if self._n_open < self._width:
            return False
        self._buckets.append(self._open)
        self._open, self._n_open = None, 0
        if len(self._buckets) == MOST:
            self._join()
        return True

    def _join(self) -> None:
        joined = []
        for left, right in zip(self._buckets[::2], self._buckets[1::2]):
            left.take(right.floor, right.count, right.peak)
            joined.append(left)
        self._buckets, self._width = joined, 2 * self._width

    @property
    def between_rises(self) -> int:
        """Steps from one rise to the next, at most, of late."""
        return max(self._gaps, default=1)

    @property
    def still_rises(self) -> bool:
        """Whether more lived than ever before not long ago, for how it rises: a bank of fixed length that is full does not."""
        return self._step - self._rose_at <= max(QUIET, 3 * self.between_rises)

    def pace(self) -> int | None:
        """By how much the floor rises with each step: 0 if it does not, None if there were too few steps."""
        n = len(self._buckets)
        if n < AT_ONCE:
            return None
        found = self._of(self._buckets[n // 2 :] if 2 * FEWEST <= n else self._buckets)
        return int(found.per_step) if found is not None else 0

    def rise(self, enough: Callable[[int], float], room: int) -> Rise | None:
        """The longest stretch of steps up to now in which the floor rises, by more than `enough(peak)` where `peak` is
        the most that was needed before; None if there is none, or if it slows down so much that it will fit into `room`."""
        buckets = self._buckets
        n = len(buckets)
        if n < AT_ONCE:
            return None
        lowest = min(it.floor for it in buckets)
        if buckets[-1].floor - lowest < enough(buckets[-1].peak):
            return None  # As nearly always.
        # All of it, then what is left without the first quarter, the first half, ...
        starts = sorted({0, n // 4, n // 2, 3 * n // 4, 7 * n // 8, n - AT_ONCE})
        for start in starts:
            found = self._of(buckets[start:])
            if found is None or found.amount < enough(buckets[start].peak):
                continue
            before = max((it.floor for it in buckets[:start]), default=0)
            if before < found.floor and room - buckets[-1].peak <= found.to_come:
                return found
        return None

    def _of(self, buckets: list[_Bucket]) -> Rise | None:
        n = len(buckets)
        if n < AT_ONCE:
            return None
        if n < FEWEST:
            return self._at_once(buckets)
        size = n // BLOCKS
        tail = buckets[n - BLOCKS * size :]
        blocks = [tail[at : at + size] for at in range(0, len(tail), size)]
        floors = [min(it.floor for it in block) for block in blocks]
        rises = [b - a for a, b in zip(floors, floors[1:])]
        most = max(rises)
        if most <= 0 or min(rises) < EVEN * most or rises[-1] < GOES_ON * most:
            return None
        steps = self._width * size * (BLOCKS - 1)
        amount = floors[-1] - floors[0]
        counts = [min(it.count for it in block) for block in blocks]
        slower = ((rises[-1] + rises[-2]) / (rises[0] + rises[1])) ** (1 / (BLOCKS - 3))
        to_come = rises[-1] * slower / (1 - slower) if slower < SLOWS_DOWN else math.inf
        # Floors of blocks are one block less than the whole.
        whole = self._width * len(tail)
        return self._found(tail, whole, amount / steps, counts[-1] - counts[0], floors[-1], to_come)

    def _at_once(self, buckets: list[_Bucket]) -> Rise | None:
        """Few steps: then each has to rise, about as much as the others."""
        rises = [b.floor - a.floor for a, b in zip(buckets, buckets[1:])]
        if min(rises) <= 0 or min(rises) < EVEN * max(rises) or rises[-1] < GOES_ON * max(rises):
            return None
        amount = buckets[-1].floor - buckets[0].floor
        more = buckets[-1].count - buckets[0].count
        steps = self._width * len(rises)
        return self._found(buckets, steps, amount / steps, more, buckets[-1].floor, math.inf)

    def _found(self, buckets: list[_Bucket], steps: int, per_step: float, blocks: int, floor: int, to_come: float) -> Rise:
        needed = buckets[-1].peak - buckets[0].peak
        return Rise(buckets[0].first, steps, per_step, blocks, needed, floor, to_come)
