"""Decides whether memory has stopped changing, and whether a run has shown enough.

Steady means: the last step allocated as often and as much as the one before, left the same bytes in
the same number of blocks, and moved neither peak. It knows counters, not what they count.

Some memory rises for a while and then stays: a cache, a buffer of fixed length, what a first epoch keeps. Some rises for
ever. Only more steps show which of the two it is, so a run in which memory rises goes on, for a bounded time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plimsoll_agent.run.effort import Effort

if TYPE_CHECKING:
    from plimsoll_agent.run.memory import Place

FEWEST_STEPS = 3
MOST_STEPS = 30
MOST_SECONDS = 120.0

MOST_STEPS_RISING = 4000
MOST_ALLOCATIONS_RISING = 400_000
MOST_SECONDS_RISING = 15.0
"""A run that still rises after `MOST_STEPS` goes on until so many steps, or for so long."""

LITTLE = 16 * 1024
"""Bytes that a step may leave: a million of them make 16 GiB. A list of losses leaves 512."""

QUIET = 8
"""Steps without a rise that end one; twice as many as lay between two rises, if that is more."""

A_LOOK, ALLOCATIONS_OF_A_LOOK, SECONDS_OF_A_LOOK = 16, 50_000, 12.0
"""Steps without a rise that show that nothing rises every few steps, how many allocations they may make, and how long they may take."""

LONGEST_LOOK = 128
"""Steps that are looked at where the script itself says that it stores something every so many: twice as many, and no more than these."""


class GivenBack:
    """Counts how often what had risen for some steps was given back: a session that is closed, a list that is cleared. Once may be a warm-up before a leak;
    twice is no growth. `before_what_is_given_back` in the core reads the same levels."""

    _FEWEST_RISES = 4

    def __init__(self) -> None:
        self._times = self._highest = self._rises = self._quiet = 0
        self._floor: int | None = None
        self._top = 0

    def add(self, level: int) -> None:
        """What lives after one more step."""
        if self._floor is None:
            self._floor = self._top = level
        height = self._top - self._floor
        self._quiet += 1
        if level > self._top:
            self._top, self._rises, self._quiet = level, self._rises + 1, 0
        elif level <= self._floor + height // 4:
            if self._rises >= self._FEWEST_RISES:
                self._times, self._highest = self._times + 1, max(self._highest, height)
            self._floor, self._top, self._rises = level, level, 0

    @property
    def may_come_again(self) -> bool:
        """Whether it was given back once, and rises again, not yet far beyond where it was."""
        return self._times == 1 and self._quiet < QUIET and self._floor is not None and self._top - self._floor <= 2 * self._highest


class Steadiness:
    """Judges a run step by step."""

    def __init__(self) -> None:
        self._previous: Place | None = None
        self._before: tuple[list[int], list[int], list[tuple[int, int]]] | None = None
        self.steps = 0
        self.steady = False
        self.rises = False
        """Whether more and more lived when the run was given up."""
        self.stores_every = 0
        """After so many steps the script stores something again, as its text has it."""
        self._since_third_step: Effort | None = None
        self._allocations_then = 0
        self._rising: Effort | None
        self._rising, self._next_judged = None, 0
        # What lived after each step, the most of it, and the last two steps after which more lived than ever before.
        self._most: int
        self._rises: list[int]
        self._lived: list[int]
        self._lived, self._most, self._rises = [], 0, [0]
        self._given_back = GivenBack()

    def step_ended(self, place: Place) -> None:
        """Takes in the end of one more step."""
        self.steps += 1
        made = None
        if self._previous is not None:
            made = (
                _difference(place.allocs, self._previous.allocs),
                _difference(place.bytes_so_far, self._previous.bytes_so_far),
                place.live,
            )
        same_peaks = self._previous is not None and place.peaks == self._previous.peaks
        self.steady = self.steps >= FEWEST_STEPS and same_peaks and made == self._before
        self._previous, self._before = place, made
        if self.steps == FEWEST_STEPS:
            self._since_third_step, self._allocations_then = Effort(), sum(place.allocs)
        lives = place.lives
        if self.steps <= FEWEST_STEPS or lives > self._most + LITTLE:
            self._rises = self._rises[-1:] + [self.steps]
            self._most = lives
        self._lived.append(lives)
        self._given_back.add(lives)

    @property
    def lived(self) -> int:
        """Bytes after the last step."""
        return self._lived[-1] if self._lived else 0

    def has_moved(self, place: Place) -> bool:
        """Whether anything was allocated since the last step."""
        before = self._previous.allocs if self._previous is not None else [0] * len(place.allocs)
        return place.allocs != before

    @property
    def has_just_risen(self) -> bool:
        """Whether more lives after this step than after any before it, beyond the first steps."""
        return FEWEST_STEPS < self.steps == self._rises[-1]

    def gave_up(self) -> bool:
        """Whether the run went on for so long without becoming steady that it should end."""
        if self._since_third_step is None:
            return False
        if self.steps < MOST_STEPS and self.seconds_since_third_step() < MOST_SECONDS:
            return False
        if self._waits_for_what_is_stored():
            return False
        if self.steps >= self._next_judged:
            self.rises, self._next_judged = self._rises_on(), self.steps + 16
        return not ((self.rises or self._given_back.may_come_again) and self._may_go_on())

    def has_settled(self, after_a_look: bool = False) -> bool:
        """Whether what rose after the first steps, if anything did, has stopped rising, as far as anybody waits for that.
        With `after_a_look`, some steps more are waited for in any case."""
        quiet = self.steps - self._rises[-1]
        if self._rises[-1] > FEWEST_STEPS:
            return quiet >= max(QUIET, 2 * (self._rises[-1] - self._rises[0])) or not self._may_go_on()
        return not after_a_look or (quiet >= A_LOOK or self._looked_for_long()) and not self._waits_for_what_is_stored()

    def _waits_for_what_is_stored(self) -> bool:
        """Whether the script stores something again soon, or has just done so."""
        twice = 2 * self.stores_every + 2
        has_risen = self._rises[-1] > FEWEST_STEPS
        has_time = self._may_go_on() if has_risen else not self._looked_for_long()
        return 0 < self.stores_every and twice <= LONGEST_LOOK and self.steps - self._rises[-1] < twice and has_time

    def _looked_for_long(self) -> bool:
        made = sum(self._previous.allocs) - self._allocations_then if self._previous is not None else 0
        return made >= ALLOCATIONS_OF_A_LOOK or self.seconds_since_third_step() >= SECONDS_OF_A_LOOK

    def rises_rarely(self) -> list[int]:
        """The last two steps after which more lived than ever before, if there are many between them, so that a run with short epochs has
        seen two. Else none."""
        rises = self._rises
        is_rare = len(rises) == 2 and FEWEST_STEPS < rises[0] and QUIET <= rises[1] - rises[0]
        # Where each step takes long, nobody waits for so many.
        is_over = MOST_STEPS <= self.steps or self._rising is not None and not self._may_go_on()
        return rises if is_rare and is_over else []

    def left_by(self, step: int) -> int:
        """By how many bytes more lived after a step than before it."""
        return self._lived[step - 1] - self._lived[step - 2]

    def _may_go_on(self) -> bool:
        self._rising = self._rising or Effort()
        return (
            self.steps < MOST_STEPS_RISING
            and (self._previous is None or sum(self._previous.allocs) < MOST_ALLOCATIONS_RISING)
            and self._rising.seconds() < MOST_SECONDS_RISING
        )

    def _rises_on(self) -> bool:
        """Whether the least that lived in the last third of the steps is more than in the third before."""
        third = len(self._lived) // 3
        return min(self._lived[-2 * third : -third]) + LITTLE * third <= min(self._lived[-third:])

    def seconds_since_third_step(self) -> float:
        """Of this machine's work; 0.0 before the third step."""
        return 0.0 if self._since_third_step is None else self._since_third_step.seconds()


def _difference(now: list[int], before: list[int]) -> list[int]:
    return [a - b for a, b in zip(now, before + [0] * (len(now) - len(before)))]
