"""Sends the numbers of a watched run to W&B, MLflow or TensorBoard, where the script already writes to one of them.

None of them is imported or started for that. A run of W&B gets the numbers with what the script logs next, so its steps are
not moved; MLflow gets them without waiting; TensorBoard through a writer that the script has made.
"""

from __future__ import annotations

import gc
import sys
import time
import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Named
    from plimsoll_agent.watch.device import Device

EVERY = 10.0
"""Seconds between two times."""

WRITERS = {"torch.utils.tensorboard.writer": "SummaryWriter", "tensorboardX.writer": "SummaryWriter"}

GIB = 1 << 30

_KNOWN = "_plimsoll_writers"
"""On a constructor that has been replaced: the writers that are known. A second watch of the process uses them, too."""


class Trackers:
    """Those of this process."""

    def __init__(self) -> None:
        self._told_at: float | None = None
        self._writers = Writers()

    @guarded
    def tell(self, step: int, devices: list[Device], alarms: list[Named]) -> None:
        """Every few seconds."""
        now = time.monotonic()
        if self._told_at is not None and now - self._told_at < EVERY:
            return
        numbers = _numbers(devices, alarms)
        if not numbers:
            return
        # The first time comes early: a short run has numbers, too.
        self._told_at = now
        _wandb(numbers)
        _mlflow(numbers, step)
        self._writers.tell(numbers, step)


class Writers:
    """TensorBoard's that the script has made and not closed."""

    def __init__(self) -> None:
        self._known: dict[type[Any], weakref.WeakSet[Any]] = {}

    @guarded
    def tell(self, numbers: dict[str, float], step: int) -> None:
        """To each of them. One that is closed would open a file again if it were written to."""
        for module, name in WRITERS.items():
            kind = getattr(sys.modules.get(module), name, None)
            if kind is not None and kind not in self._known:
                self._find(kind)
        for writer in [it for known in self._known.values() for it in known]:
            if getattr(writer, "file_writer", None) is not None:
                for name, value in numbers.items():
                    writer.add_scalar(name, value, step)

    def _find(self, kind: type[Any]) -> None:
        """Those that are there, by a look at everything that Python has, once a process; later ones say so themselves."""
        made = kind.__init__
        known = getattr(made, _KNOWN, None)
        if known is None:
            known = weakref.WeakSet()

            def init(writer: Any, *args: Any, **kwargs: Any) -> None:
                made(writer, *args, **kwargs)
                known.add(writer)

            setattr(init, _KNOWN, known)
            patch.put(kind, "__init__", init)
            # Not `isinstance`, which asks an object for its class: some answer with a warning.
            known.update(it for it in gc.get_objects() if issubclass(type(it), kind))
        self._known[kind] = known


def _numbers(devices: list[Device], alarms: list[Named]) -> dict[str, float]:
    found: dict[str, float] = {}
    for device in devices:
        if device.room_is_unknown:
            continue
        name = "plimsoll/" if len(devices) == 1 else "plimsoll/cuda%d_" % device.index
        found[name + "allocated_gib"] = device.allocated / GIB
        found[name + "reserved_gib"] = device.reserved / GIB
        found[name + "peak_reserved_gib"] = device.peak_reserved / GIB
        pace = device.pace()
        if pace is not None:
            found[name + "growth_per_step_mib"] = pace / (1 << 20)
    if found:
        found["plimsoll/alarms"] = len(alarms)
    return found


@guarded
def _wandb(numbers: dict[str, float]) -> None:
    run = getattr(sys.modules.get("wandb"), "run", None)
    if run is not None:
        run.log(numbers, commit=False)


@guarded
def _mlflow(numbers: dict[str, float], step: int) -> None:
    mlflow: Any = sys.modules.get("mlflow")
    active = getattr(mlflow, "active_run", None)
    if active is not None and active() is not None:
        mlflow.log_metrics(numbers, step=step, synchronous=False)
