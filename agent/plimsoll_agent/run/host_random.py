"""Where the random numbers of Python and NumPy are."""

import random
import sys


class HostRandom:
    """As they are now. What is decided by them (whether a layer is skipped, a teacher forced, a picture flipped) is decided again
    when the same is done again."""

    def __init__(self):
        self._python = random.getstate()
        numpy = sys.modules.get("numpy.random")
        self._numpy = numpy and numpy.get_state()

    def again(self):
        """They go on from there."""
        random.setstate(self._python)
        if self._numpy:
            sys.modules["numpy.random"].set_state(self._numpy)
