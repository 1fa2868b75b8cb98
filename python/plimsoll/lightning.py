"""For the Trainer of Lightning, under either of its names (`lightning`, `pytorch_lightning`).

    trainer = Trainer(callbacks=[plimsoll.lightning.Callback("run.zip"), plimsoll.lightning.Watch()])

Importing this module imports Lightning.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from plimsoll import _watch
from plimsoll._record import Recorder, record
from plimsoll._watermark import Watermark


def _base() -> Any:
    """The class of callbacks of the Lightning that the program uses."""
    names = ["lightning.pytorch", "pytorch_lightning"]
    names.sort(key=lambda name: name not in sys.modules)
    for name in names:
        try:
            return importlib.import_module(name).Callback
        except ImportError:
            continue
    raise ImportError("plimsoll.lightning needs Lightning: pip install lightning")


class Callback(_base()):  # type: ignore[misc]
    """Records a training, and logs the peaks of GPU memory.

    The logged names are `gpu_peak_allocated_gib` and `gpu_peak_reserved_gib`. Every process of a distributed training
    records into a file of its own, `run-rank3.zip`.
    """

    def __init__(self, path: str | os.PathLike[str] | None = "plimsoll-run.zip", *, events: int = 200_000) -> None:
        """`path`: where the recording goes; None for no recording. `events`: how many of the last ones it has."""
        super().__init__()
        self._path, self._events = path, events
        self._recorder: Recorder | None = None
        self._watermark = Watermark()

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Starts the recorder, before the model is moved to the device."""
        if stage == "fit" and self._path is not None and self._recorder is None:
            self._recorder = record(self._watermark.of_rank(self._path), events=self._events).start()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:
        """Logs the peaks."""
        self._watermark.look()
        for name, value in self._watermark.values().items():
            pl_module.log(name, value)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Writes the recording of what failed."""
        self._stop(exception)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Writes the recording."""
        self._stop(None)

    def _stop(self, error: BaseException | None) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.__exit__(type(error) if error is not None else None, error, None)


class Watch(_base()):  # type: ignore[misc]
    """Watches a training, as `plimsoll.watch` does."""

    def __init__(self, **options: Any) -> None:
        """`options` are those of `plimsoll.watch`."""
        super().__init__()
        self.watch = _watch.Watch(**options)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Begins, before the model is moved to the device."""
        if stage == "fit":
            self.watch.start()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Ends."""
        if stage == "fit":
            self.watch.stop()
