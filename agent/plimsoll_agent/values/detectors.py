"""Decides how many boxes torchvision's detectors select when their scores are unknown.

On a phantom every score is zero, so their filters would find nothing, and half of the model would see no
boxes. They have limits of their own (2000 proposals, 512 samples of which a quarter are objects, 100
detections), which they reach in training: until then, everything is let through. But objects: of those there are
what the targets have, which are known, each with the proposals that overlap it enough.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.guard import guarded
from plimsoll_agent.values import phantom

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Function, Module

DETECTORS = "torchvision.models.detection."
POOLERS = "torchvision.ops.poolers"

FRESH, TRAINED = 1, 6
"""Proposals that show an object, for each object in the targets. A network without weights proposes boxes as they
come, and what shows an object are the targets themselves, which are added to them (57 for 52 objects in twelve
pictures of 480 by 640, objects of 25 to 450 pixels); one that was trained before proposes some around each."""

_trained = False


def kept(module: Module) -> Any:
    """What share the filters of this module keep; None for what is usual."""
    where = type(module).__module__
    if where.startswith(DETECTORS):
        sampler = getattr(module, "fg_bg_sampler", None)
        if sampler is None:
            return 1.0
        if not hasattr(module, "box_roi_pool"):
            _look_whether_trained(module)
            return 1.0
        _watch(type(sampler))
        _watch_targets(module)
        # Of the samples, those that show an object go on to masks and keypoints.
        return getattr(sampler, "plimsolls_share", sampler.positive_fraction) if module.training else 1.0
    if where == POOLERS:  # Each box is pooled from one level of the pyramid.
        _watch_levels(sys.modules[POOLERS].LevelMapper)
        return 1.0 / max(1, len(getattr(module, "scales", None) or ()))
    return None


class Shares:
    """The shares of the modules that run on this thread."""

    def __init__(self) -> None:
        self._stack: list[Any] = []

    def enter(self, module: Module, depth: int) -> None:
        """A module begins, so many calls deep."""
        share = kept(module)
        if share is not None and (not self._stack or kept(self._stack[-1][1]) != share):
            self._stack.append((depth, module))
            phantom.keep(share)

    def leave(self, depth: int) -> None:
        """The module so many calls deep is over."""
        if self._stack and self._stack[-1][0] == depth:
            self._stack.pop()
            phantom.keep(kept(self._stack[-1][1]) if self._stack else None)


def _watch(kind: type[Any]) -> None:
    """From now on the masks of this class of samplers say which boxes: as many as it draws."""

    def filled(draw: Function, self: Any, matched: Any) -> tuple[Any, Any]:
        positive, negative = draw(self, matched)
        known = getattr(self, "plimsolls_objects", None) or [None] * len(positive)
        for objects, others, count in zip(positive, negative, known):
            _fill(self, objects, others, count)
        return positive, negative

    _wrap_once(kind, filled)


def _watch_targets(heads: Any) -> None:
    """From now on the sampler of these heads knows how many objects there are in each picture."""

    def counted(select: Function, self: Any, proposals: Any, targets: Any) -> Any:
        sampler = self.fg_bg_sampler
        sampler.plimsolls_objects = [len(it["boxes"]) for it in targets or ()]
        selected = select(self, proposals, targets)
        phantom.keep(kept(self))
        return selected

    _wrap_once(type(heads), counted, "select_training_samples")


@guarded
def _look_whether_trained(network: Any) -> None:
    """A region proposal network begins with biases of zero; one whose are others has weights of an earlier training."""
    global _trained
    if not getattr(network, "plimsolls_seen", False):
        network.plimsolls_seen = True
        biases = [it for name, it in network.head.named_parameters() if name.endswith("bias")]
        _trained = any(bool(it.detach().cpu().any()) for it in biases)


def _per_object() -> Any:
    return phantom.assumed("objects") or (TRAINED if _trained else FRESH)


def _watch_levels(kind: type[Any]) -> None:
    """From now on the numbers of this class of mappers say from which level each box is pooled."""

    def filled(choose: Function, self: Any, boxes: Any) -> Any:
        levels = choose(self, boxes)
        _fill_levels(levels, 1 + self.k_max - self.k_min)
        return levels

    _wrap_once(kind, filled)


def _wrap_once(kind: type[Any], around: Any, name: str = "__call__") -> None:
    def wrapped(call: Function) -> Function:
        return lambda self, *args: around(call, self, *args)

    patch.replace(kind, name, wrapped, once=True)


@guarded
def _fill_levels(levels: Any, count: int) -> None:
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
def _fill(sampler: Any, objects: Any, others: Any, known: Any) -> None:
    """Draws as many as may be drawn of each kind, where so many objects are known or any number may be."""
    if not objects.is_cuda or not phantom.is_here():
        return
    count = min(objects.numel(), sampler.batch_size_per_image)
    some = min(count, int(sampler.batch_size_per_image * sampler.positive_fraction))
    if known is not None:
        some = min(some, known * _per_object())
        shares = sampler.__dict__.setdefault("plimsolls_shares", [])
        shares.append(some / max(1, count))
        del shares[: -len(sampler.plimsolls_objects)]
        sampler.plimsolls_share = sum(shares) / len(shares)
    drawn = objects.new_zeros(objects.shape, device="cpu")
    drawn[:some] = 1
    objects.copy_(drawn)
    drawn.zero_()
    drawn[some:count] = 1
    others.copy_(drawn)
