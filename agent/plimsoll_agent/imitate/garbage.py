"""A child of the nursery collects its own garbage, and when a process of its own would.

What the nursery has imported is hundreds of thousands of objects (350,000 with transformers' Trainer). Who collects garbage goes
through all of them and writes into each: pages that the child has only borrowed are copied. Some libraries do that before every training. So those objects are left out; they hold
nothing of a device. And Python goes through everything by itself: after more than ten collections of the middle generation
(`gc.get_threshold()`), once what is new among the old is a quarter of the old (`long_lived_pending` and `long_lived_total` in Modules/gcmodule.c). While the nursery imports,
that is a seventh of the time, so it is held back and only counted. In a child what was left out would not count as old: then it would come too often, and free what a real run
still has. So there it is held back, too, until that quarter is there.
"""

import gc
import sys

HELD = 1 << 30
"""No program has so many collections of the middle generation."""

AT_ONCE = -1
"""Fewer than any number of collections of the young."""

_pace = None


def hold():
    """In the nursery, before it imports: from now on what is old is not gone through. From 3.14 on Python collects in another way, and is let
    be; and so it is where it went through everything before, since nobody can ask what it counted then."""
    global _pace
    if sys.version_info < (3, 14) and gc.isenabled() and not gc.get_stats()[2]["collections"]:
        _pace = Pace(went_through=0, n_middle=gc.get_count()[2])
        _pace.hold()
        gc.callbacks.append(_pace)


def lend():
    """In the nursery, when it has: what there is now belongs to no child, and each collects its own from here on."""
    global _pace
    if sys.version_info < (3, 14):
        if _pace is None:
            _pace = Pace()
            gc.callbacks.append(_pace)
        _pace.settle()
        _pace.leave_out_what_is_there()


class Pace:
    """Told of each collection; lets those of everything happen when they would, or counts them."""

    def __init__(self, went_through=None, n_middle=0):
        """How many objects were left by the last collection of everything, None if that is not known, and how many of the middle
        generation there were since."""
        self._went_through, self._n_middle = went_through, n_middle
        self._left_out = 0
        self._usual = gc.get_threshold()[2]
        self._lets_them = False
        self._first = self._later = self._middle = None
        # How many are old, of those that are not left out: after that collection, and beyond these at most.
        self._before = self._most_new = 0

    def hold(self):
        """None happens from now on."""
        young, middle, old = gc.get_threshold()
        if old != HELD:
            self._usual = old or self._usual
            gc.set_threshold(young, middle, HELD)

    def count(self):
        """How many are new among the old."""
        self._most_new = _n_old() - self._before

    def settle(self):
        """Before what there is is left out."""
        young, middle, old = gc.get_threshold()
        if middle == AT_ONCE:
            gc.set_threshold(young, self._middle, old)
            self._went_through_all()
        self.count()
        # The young ones are old by the first collection that may be one of everything.
        self._most_new += sum(len(gc.get_objects(generation=it)) for it in (0, 1))

    def leave_out_what_is_there(self):
        """Once, before there is a child: to count so many writes into each of them, and to find out how many were left out takes long. From now on
        collections of everything happen."""
        self._before = -self._most_new
        self._lets_them = True
        counts, (young, middle, old) = gc.get_count(), gc.get_threshold()
        gc.freeze()
        self._left_out = gc.get_freeze_count()
        # What counts towards the next one of each generation was forgotten.
        if 0 < young:
            self._first = max(1, young - counts[0]), max(0, middle - counts[1])
            self._later = young, middle
            gc.set_threshold(*self._first, old)

    def __call__(self, phase, info):
        if phase != "stop":
            return
        if self._first is not None:
            self._goes_on_as_usual(info["generation"])
        young, middle, old = gc.get_threshold()
        if info["generation"] == 2:
            self._went_through_all()
        elif info["generation"] == 1 and old == HELD and self._went_through is not None:
            if middle == AT_ONCE:
                # Only the old ones were not gone through.
                gc.set_threshold(young, self._middle, old)
                self._went_through_all()
                return
            self._n_middle += 1
            # So many may have become old by this one; counting them takes time.
            self._most_new += (young + 1) * (middle + 2)
            if self._usual < self._n_middle and self._is_a_quarter():
                self.count()
                if self._is_a_quarter():
                    # It would come instead of the next collection, of whatever generation.
                    self._middle = middle
                    gc.set_threshold(young, *((middle, 0) if self._lets_them else (AT_ONCE, old)))

    def _goes_on_as_usual(self, generation):
        """The first collection after the fork, or the first of the middle generation, is over."""
        young, middle, old = gc.get_threshold()
        if (young, middle) == self._first:
            gc.set_threshold(self._later[0], middle if generation == 0 else self._later[1], old)
            self._first = (self._later[0], middle) if generation == 0 else None
        else:  # The script has set its own.
            self._first = None

    def _is_a_quarter(self):
        return self._went_through // 4 <= self._most_new

    def _went_through_all(self):
        self._before = _n_old()
        self._went_through = self._left_out + self._before
        self._most_new = self._n_middle = 0
        self.hold()


def _n_old():
    return len(gc.get_objects(generation=2))
