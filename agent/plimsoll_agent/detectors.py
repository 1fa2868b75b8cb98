"""What torchvision's detectors keep of values that nobody computed.

On a phantom every score is zero, so their filters would find nothing, and half of the model would see no
boxes. They have limits of their own (2000 proposals, 512 samples of which a quarter are objects, 100
detections), which they reach in training: until then, everything is let through.
"""

import functools
import sys

from plimsoll_agent import phantom
from plimsoll_agent.guard import guarded

DETECTORS = "torchvision.models.detection."
POOLERS = "torchvision.ops.poolers"


def kept(module):
    """What share the filters of this module keep; None for what is usual."""
    where = type(module).__module__
    if where.startswith(DETECTORS):
        sampler = getattr(module, "fg_bg_sampler", None)
        if sampler is None or not hasattr(module, "box_roi_pool"):
            return 1.0
        _watch(type(sampler))
        # Of the samples, those that show an object go on to masks and keypoints.
        return sampler.positive_fraction if module.training else 1.0
    if where == POOLERS:  # Each box is pooled from one level of the pyramid.
        _watch_levels(sys.modules[POOLERS].LevelMapper)
        return 1.0 / max(1, len(getattr(module, "scales", None) or ()))
    return None


class Kept:
    """The shares of the modules that run on this thread."""

    def __init__(self):
        self._stack = []

    def enter(self, module, depth):
        """A module begins, so many calls deep."""
        share = kept(module)
        if share is not None and (not self._stack or self._stack[-1][1] != share):
            self._stack.append((depth, share))
            phantom.keep(share)

    def leave(self, depth):
        """The module so many calls deep is over."""
        if self._stack and self._stack[-1][0] == depth:
            self._stack.pop()
            phantom.keep(self._stack[-1][1] if self._stack else None)


def _watch(kind):
    """From now on the masks of this class of samplers say which boxes: as many as it draws."""

    def filled(draw, self, matched):
        positive, negative = draw(self, matched)
        for objects, others in zip(positive, negative):
            _fill(self, objects, others)
        return positive, negative

    _wrap_once(kind, filled)


def _watch_levels(kind):
    """From now on the numbers of this class of mappers say from which level each box is pooled."""

    def filled(choose, self, boxes):
        levels = choose(self, boxes)
        _fill_levels(levels, 1 + self.k_max - self.k_min)
        return levels

    _wrap_once(kind, filled)


def _wrap_once(kind, around):
    call = kind.__call__
    if getattr(call, "plimsolls", False):
        return

    @functools.wraps(call)
    def __call__(self, *args):
        return around(call, self, *args)

    __call__.plimsolls = True
    kind.__call__ = __call__


@guarded
def _fill_levels(levels, count):
    """A level has a quarter of the places of the one below it, and of the boxes."""
    if not levels.is_cuda or not phantom.is_here():
        return
    total, left = levels.numel(), levels.numel()
    chosen = levels.new_zeros(levels.shape, device="cpu")
    whole = sum(4.0**-it for it in range(count))
    for level in range(count - 1, 0, -1):
        some = min(left, round(total * 4.0**-level / whole))
        chosen[left - some : left] = level
        left -= some
    levels.copy_(chosen)


@guarded
def _fill(sampler, objects, others):
    if not objects.is_cuda or not phantom.is_here():
        return
    count = min(objects.numel(), sampler.batch_size_per_image)
    some = min(count, int(sampler.batch_size_per_image * sampler.positive_fraction))
    drawn = objects.new_zeros(objects.shape, device="cpu")
    drawn[:some] = 1
    objects.copy_(drawn)
    drawn.zero_()
    drawn[some:count] = 1
    others.copy_(drawn)
