"""Has memory stopped changing? And when has a run shown enough?

Steady means: the last step allocated as often and as much as the one before, left the same bytes in
the same number of blocks, and moved neither peak. It knows counters, not what they count.
"""

import time

FEWEST_STEPS = 3
MOST_STEPS = 30
MOST_SECONDS = 120.0


class Steadiness:
    """Judges a run step by step."""

    def __init__(self):
        self._previous = None
        self._before = None
        self.steps = 0
        self.steady = False
        self._third_step_at = None

    def step_ended(self, place):
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
            self._third_step_at = time.monotonic()

    def has_moved(self, place):
        """Whether anything was allocated since the last step."""
        before = self._previous.allocs if self._previous is not None else [0] * len(place.allocs)
        return place.allocs != before

    def gave_up(self):
        """Whether the run went on for so long without becoming steady that it should end."""
        if self._third_step_at is None:
            return False
        return self.steps >= MOST_STEPS or self.seconds_since_third_step() >= MOST_SECONDS

    def seconds_since_third_step(self):
        """0.0 before the third step."""
        return 0.0 if self._third_step_at is None else time.monotonic() - self._third_step_at


def _difference(now, before):
    return [a - b for a, b in zip(now, before + [0] * (len(now) - len(before)))]
