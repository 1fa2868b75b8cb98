"""A clock for budgets: the seconds that a machine without other work would have taken.

What a run sees of a script should not depend on who else uses the machine. While other programs have the processor, the wall clock
goes on and this process's time does not. A process that waits uses no time either, so the clock runs at half the wall's speed then.
"""

from __future__ import annotations

import time

SLOWEST = 2.0
"""The wall's seconds in one of these, at most."""


class Effort:
    """Counts from when it is made."""

    def __init__(self) -> None:
        self._wall, self._own = time.monotonic(), time.process_time()

    def seconds(self) -> float:
        """So far."""
        wall, own = time.monotonic() - self._wall, time.process_time() - self._own
        return max(min(wall, own), wall / SLOWEST)
