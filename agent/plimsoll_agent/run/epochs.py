"""Ends epochs early, so that a run reaches the code after an epoch soon.

While this is on, the DataLoader of the training yields no more batches. The loader of a validation goes on, until the whole run
is to end.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run import frames
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Callable

    from plimsoll_agent.kinds import Named

_ITERABLE = 1
"""`torch.utils.data._DatasetKind.Iterable`."""


class _Levels:
    """The memory in use each time a loop has done a batch: whether it rises with each."""

    __slots__ = ("first", "last", "rises", "turns")

    def __init__(self, lives: int) -> None:
        self.first = self.last = lives
        self.rises = self.turns = 0

    def goes_on(self, lives: int) -> None:
        self.turns += 1
        self.rises += self.last < lives
        self.last = lives

    @property
    def rise(self) -> int:
        """Bytes a batch; 0 if it does not rise with nearly each."""
        return max(0, self.last - self.first) // self.turns if 3 <= self.turns and 3 * self.turns <= 4 * self.rises else 0


class Epochs:
    """Which loaders feed training, and whether they are to end."""

    def __init__(self, lives: Callable[[], int]) -> None:
        self._recent: weakref.WeakSet[Any]
        self._training: weakref.WeakSet[Any]
        self._training, self._recent = weakref.WeakSet(), weakref.WeakSet()
        self._over: weakref.WeakSet[Any] = weakref.WeakSet()
        self.end_early = False
        """Whether loaders of training have no more, each after its first step."""
        self.end_what_runs = False
        """Set by any thread that has waited for too long: then loaders yield no more batches, also those of an evaluation."""
        self.cut_training = self.cut_evaluation = False
        """Whether one was ended by that."""
        self.batches = 0
        """How many batches training took from loaders."""
        self._taken: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._lives = lives
        """How many bytes of GPU memory are in use."""
        self._levels: weakref.WeakKeyDictionary[Any, _Levels] = weakref.WeakKeyDictionary()
        self.cut_loop: Named | None = None
        """A loop that was ended while memory rose with each of its batches: its line, the batches that it took and would have taken, the rise of each in
        bytes, and what was in use at last."""
        self.gave: Callable[[Any], object] = lambda batch: None
        """Called with each batch that a loader gives."""
        self.in_an_epoch: int | None = None
        """How many one of its loaders gives in an epoch, if it has a length."""

    def install(self) -> None:
        """Takes its place in PyTorch's loader."""
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        take, reset = _BaseDataLoaderIter.__next__, _BaseDataLoaderIter._reset

        def __next__(iterator: Any) -> Any:
            if self._ends(iterator):
                raise StopIteration
            batch = take(iterator)
            self._took(iterator)
            self.gave(batch)
            return batch

        def _reset(iterator: Any, *args: Any, **kwargs: Any) -> Any:
            self._begins_again(iterator)
            return reset(iterator, *args, **kwargs)

        patch.put(_BaseDataLoaderIter, "__next__", __next__)
        patch.put(_BaseDataLoaderIter, "_reset", _reset)

    @guarded
    def _ends(self, iterator: Any) -> bool:
        if self.end_what_runs:
            self.end_what_runs = False
            self._over |= self._training
            self._over |= self._recent
        is_over = iterator in self._over
        if iterator in self._training:
            is_over = is_over or self.end_early
            self.cut_training = self.cut_training or is_over
        else:
            # A batch that was taken is done when the next one is asked for; the first one may set up what stays.
            done = self._taken.get(iterator, 0)
            if done and (levels := self._levels.get(iterator)) is not None:
                levels.goes_on(self._lives())
            elif done:
                self._levels[iterator] = _Levels(self._lives())
            self.cut_evaluation = self.cut_evaluation or is_over
            if is_over:
                self._note_cut(iterator, done)
        return is_over

    def _note_cut(self, iterator: Any, taken: int) -> None:
        levels = self._levels.pop(iterator, None)
        rise = levels.rise if levels is not None else 0
        if levels is None or not rise or self.cut_loop is not None and rise < self.cut_loop["rise"]:
            return
        of = None
        with contextlib.suppress(TypeError, NotImplementedError):
            of = len(iterator)
        line = frames.user_frame(frames.stack(sys._getframe()))
        self.cut_loop = {"line": line, "taken": taken, "of": of, "rise": rise, "lives": levels.last}

    @guarded
    def _took(self, iterator: Any) -> None:
        """A batch: asking at the end of an epoch gives none."""
        self._taken[iterator] = self._taken.get(iterator, 0) + 1
        self.batches += iterator in self._training
        self._recent.add(iterator)

    @guarded
    def _begins_again(self, iterator: Any) -> None:
        """Workers that live on: the same iterator, for the next epoch."""
        for known in (self._training, self._recent, self._over):
            known.discard(iterator)
        self._taken.pop(iterator, None)
        self._levels.pop(iterator, None)

    def end_this_one(self) -> None:
        """The loaders that feed training now have no more; those of the next epoch have."""
        self._over |= self._training

    @property
    def feed_training(self) -> bool:
        """Whether training takes its batches from a loader that is still there."""
        return bool(self._training)

    def feeding(self) -> list[Any]:
        """The iterators of the loaders from which training takes its batches."""
        return list(self._training)

    @property
    def are_streams(self) -> bool:
        """Whether those batches come from something without a length, which may have no end."""
        return any(it._dataset_kind == _ITERABLE for it in self._training)

    def step_ended(self) -> None:
        """What was taken since the last step was for training."""
        # Those of an evaluation have ended, and are not there any more.
        new = [it for it in self._recent if it not in self._training]
        self._training |= self._recent
        self._recent.clear()
        self.batches += sum(self._taken.get(it, 0) for it in new)
        if new and self.in_an_epoch is None and not self.are_streams:
            with contextlib.suppress(TypeError, NotImplementedError):  # A sampler need not have a length.
                self.in_an_epoch = max(len(it) for it in new)
