"""The states of the random generators of Python and NumPy."""

from __future__ import annotations

import random
import sys
from typing import Any


class HostRandom:
    """As they are now. What is decided by them (whether a layer is skipped, a teacher forced, a picture flipped) is decided again
    when the same is done again."""

    def __init__(self) -> None:
        self._python = random.getstate()
        numpy = sys.modules.get("numpy.random")
        self._numpy: Any = numpy and numpy.get_state()

    def again(self) -> None:
        """They go on from there."""
        random.setstate(self._python)
        if self._numpy:
            sys.modules["numpy.random"].set_state(self._numpy)
