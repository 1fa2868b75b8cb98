"""For the Trainer of Hugging Face transformers.

    trainer = Trainer(..., callbacks=[plimsoll.hf.Callback("run.zip"), plimsoll.hf.Watch()])

Importing this module imports transformers.
"""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback

from plimsoll import _watch
from plimsoll._record import Recorder, record
from plimsoll._watermark import Watermark


class Callback(TrainerCallback):
    """Records a training, and adds the peaks of GPU memory to what the Trainer logs.

    The log history gets `gpu_peak_allocated_gib` and `gpu_peak_reserved_gib`, the largest so far. Every process of
    a distributed training records into a file of its own, `run-rank3.zip`.
    """

    def __init__(self, path: str | os.PathLike[str] | None = "plimsoll-run.zip", *, events: int = 200_000) -> None:
        """`path`: where the recording goes; None for no recording. `events`: how many of the last ones it has."""
        self._path, self._events = path, events
        self._recorder: Recorder | None = None
        self._watermark = Watermark()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Starts the recorder."""
        if self._path is not None and self._recorder is None:
            self._recorder = record(self._watermark.of_rank(self._path), events=self._events).start()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Looks at the peaks."""
        self._watermark.look()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Adds the peaks."""
        peaks = self._watermark.values()
        if isinstance(logs, dict):
            logs.update(peaks)
        # The Trainer has made its copy by now.
        if state.log_history:
            state.log_history[-1].update(peaks)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Writes the recording. When training fails, it is written at the end of the process."""
        if self._recorder is not None:
            self._recorder.stop()
            self._recorder = None


class Watch(TrainerCallback):
    """Watches a training, as `plimsoll.watch` does, and adds alarms to what the Trainer logs.

    The log history gets `plimsoll_alarm`, the sentence of the newest alarm, once there is one.
    """

    def __init__(self, **options: Any) -> None:
        """`options` are those of `plimsoll.watch`."""
        self.watch = _watch.Watch(**options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begins, unless it has."""
        self.watch.start()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Adds the newest alarm."""
        if self.watch.alarms and state.log_history:
            state.log_history[-1]["plimsoll_alarm"] = self.watch.alarms[-1].text

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ends. When training fails, it ends with the process."""
        self.watch.stop()
