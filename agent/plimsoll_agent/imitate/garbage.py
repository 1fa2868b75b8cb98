"""A child of the nursery collects its own garbage, and when a process of its own would.

What the nursery has imported is hundreds of thousands of objects (350,000 with transformers' Trainer). Who collects garbage goes
through all of them and writes into each: pages that the child has only borrowed are copied. Some libraries do that before every training. So those objects are left out; they hold
nothing of a device. But Python goes through everything by itself once what is new among the old is a quarter of the old
(`long_lived_pending` and `long_lived_total` in Modules/gcmodule.c), and after a collection it would count only what it went
through: then it would come too often, and free what a real run still has. From then on it is held back until that quarter is there.
"""

import gc
import sys

HELD = 1 << 30
"""No program has so many collections of the middle generation."""


def borrow():
    """From now on, in a child that has done nothing yet. From 3.14 on Python collects in another way, and is let be."""
    if sys.version_info < (3, 14):
        gc.freeze()
        gc.callbacks.append(_Pace())


class _Pace:
    """Told of each collection."""

    def __init__(self):
        self._borrowed = gc.get_freeze_count()
        self._usual = self._quarter = None
        self._own = self._most_new = 0

    def __call__(self, phase, info):
        if phase != "stop":
            return
        young, middle, old = gc.get_threshold()
        if info["generation"] == 2:
            self._own, self._most_new = _n_old(), 0
            self._quarter = (self._borrowed + self._own) // 4
            if old != HELD:
                self._usual = old
                gc.set_threshold(young, middle, HELD)
        elif info["generation"] == 1 and old == HELD:
            # So many may have become old by this one; counting them takes time.
            self._most_new += (young + 1) * (middle + 2)
            if self._quarter < self._most_new:
                self._most_new = _n_old() - self._own
                if self._quarter < self._most_new:
                    gc.set_threshold(young, middle, self._usual)


def _n_old():
    return len(gc.get_objects(generation=2))
