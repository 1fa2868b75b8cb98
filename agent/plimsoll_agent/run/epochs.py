"""Epochs that end early, so that a validation is seen long before it would come.

With the goal `validation` a run goes on once memory is steady, and from there on the DataLoader that training takes its
batches from has no more: what a script does after an epoch comes at once. The loader of a validation is left alone. The
run ends with the first training step after a validation, before the script writes a checkpoint of what was never
trained, or when no validation came within `MORE_STEPS`.
"""

import functools
import sys
import time
import weakref

MORE_STEPS = 8
MOST_SECONDS = 60.0
"""Of what comes after the first epoch."""


class Epochs:
    """Which loaders feed training, and whether they are to end."""

    def __init__(self, torch, phases, stopping, note):
        self._torch, self._phases, self._stopping, self._note = torch, phases, stopping, note
        self._training, self._recent = weakref.WeakSet(), weakref.WeakSet()
        self._since = None
        self._steps = 0
        self._evaluations_before = None  # At the end of the last epoch: a teacher of each step is no validation.

    def install(self):
        """Takes its place in PyTorch's loader."""
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        take, reset = _BaseDataLoaderIter.__next__, _BaseDataLoaderIter._reset

        @functools.wraps(take)
        def __next__(iterator):
            if self._since is not None and (iterator in self._training or self._is_late()):
                self._evaluations_before = self._phases.evaluations
                raise StopIteration
            self._recent.add(iterator)
            return take(iterator)

        @functools.wraps(reset)
        def _reset(iterator, *args, **kwargs):
            # Workers that live on: the same iterator, for the next epoch.
            self._training.discard(iterator)
            self._recent.discard(iterator)
            return reset(iterator, *args, **kwargs)

        _BaseDataLoaderIter.__next__, _BaseDataLoaderIter._reset = __next__, _reset

    def step_ended(self):
        """What was taken since the last step was for training. Whether epochs end early already."""
        self._training |= self._recent
        self._recent.clear()
        if self._since is None:
            return False
        self._steps += 1
        return True

    def end_early(self):
        """From now on, if they do not yet; then False."""
        if self._since is not None:
            return False
        self._since = time.monotonic()
        self._wrap_writers()
        return True

    def are_enough(self):
        """Whether a validation came, or none will."""
        before = self._evaluations_before
        if before is not None and before < self._phases.evaluations:
            return True
        return self._steps >= MORE_STEPS or self._is_late()

    def _is_late(self):
        return time.monotonic() - self._since >= MOST_SECONDS

    def _wrap_writers(self):
        places = [(self._torch, "save")]
        if "safetensors.torch" in sys.modules:
            places.append((sys.modules["safetensors.torch"], "serialize_file"))
        for module, name in places:
            setattr(module, name, self._instead_of_writing(getattr(module, name)))

    def _instead_of_writing(self, write):
        @functools.wraps(write)
        def wrapped(*args, **kwargs):
            self._note("before-saving", "the run was ended before the script wrote a checkpoint")
            self._stopping.request()
            self._stopping.here(None)
            return write(*args, **kwargs)

        return wrapped
