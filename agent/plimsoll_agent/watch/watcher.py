"""All devices, step by step; each alarm once.

An alarm is a line of the recording. The program that started this process makes a sentence of it and reports it; the sentence comes
back in a file of the session, for the status file. Where memory grows, the recorder first records some steps in full, and stores
that recording beside the alarm: it has the line whose memory stays allocated.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from plimsoll_agent.run.guard import guarded
from plimsoll_agent.watch import bounds
from plimsoll_agent.watch.device import Device
from plimsoll_agent.watch.holes import Holes
from plimsoll_agent.watch.status import Status
from plimsoll_agent.watch.trackers import Trackers

if TYPE_CHECKING:
    from collections.abc import Callable

    from plimsoll_agent.kinds import Named, Optimizer, Tensor, Torch
    from plimsoll_agent.run.memory import Place
    from plimsoll_agent.run.modules import Modules
    from plimsoll_agent.run.recording import Recording
    from plimsoll_agent.run.sampling import Sampling
    from plimsoll_agent.watch.trend import Rise

A_WHILE = 1.0
"""Seconds between two looks at what is not in the counters, and between two writes of the status file."""

SOON = 0.1
"""Seconds between two looks for what was made of an alarm, after one."""

FEWEST_SEEN, MOST_SEEN = 12, 2048
"""Steps that are seen in full where something grows."""

SECONDS_SEEN = 90.0
"""They last no longer than this."""

A_FEW = 16
"""Steps that are soon over."""

MOST_ALARMS = 20


class Watcher:
    """Watches one process."""

    def __init__(
        self, torch: Torch, recording: Recording, sampling: Sampling, modules: Modules, optimizers: Callable[[], list[Optimizer]], leave: Callable[[str], bool], label: str | None = None, expected: int | None = None, is_quiet: bool = False
    ) -> None:
        """`leave(folder)` leaves a recording of the last steps there. `expected`: bytes that are reserved at most. A quiet one
        only leaves the file by which others see the run."""
        self.is_quiet = is_quiet
        self._torch = torch
        self._recording = recording
        self._sampling = sampling
        self._modules = modules
        self._optimizers = optimizers
        self._leave = leave
        self._label = label
        self._expected = expected
        # Called with the sentence of each alarm.
        self.hearers: list[Callable[[Named], object]] = []
        self._begin()

    def _begin(self) -> None:
        self._devices: list[Device] = []
        self._step = 0
        self._said: set[tuple[str, int]] = set()
        self._told: list[Named]
        self._told, self._n_told = [], 0
        # An earlier watch of this process has read what is there.
        self._read_to = self._size_of_told()
        self._asked_at = 0.0
        self._seconds: deque[float] = deque(maxlen=32)
        self._ended_at: float | None = None
        self._looked_at = 0.0
        self._grows: tuple[Device, Rise, int, float] | None = None
        # What models were given in each step of a look, and the step before which none is worth it.
        self._given: list[int]
        self._given, self._not_before = [], 0
        self._to_come: int | None
        self._to_come, self._filling_until = None, 0
        self._categories: dict[int, dict[str, int]] = {}
        self._named_at = 0
        self._status = Status(self._label)
        self._holes = Holes(self._torch)
        self._trackers = Trackers()

    def forked(self) -> None:
        """In a forked child: a run of its own."""
        self._begin()

    def start(self) -> None:
        """The process uses a device."""
        self._write_status()

    def finish(self) -> None:
        """The process ends."""
        self._status.remove()

    @guarded
    def step_ended(self, step: int, place: Place) -> None:
        """After each step; `place` has the counters."""
        now = time.perf_counter()
        if step <= self._step:
            self._devices = []  # What counts as a step is another thing from now on.
        self._step = step
        if self._ended_at is not None:
            self._seconds.append(now - self._ended_at)
        self._ended_at = now
        while len(self._devices) < len(place.allocated):
            self._devices.append(Device(len(self._devices)))
        is_late = A_WHILE <= now - self._looked_at
        for device in self._devices:
            if not place.reserved[device.index]:
                continue
            if device.room_is_unknown or is_late:
                device.ask(self._torch)
            is_time = device.step_ended(step, place)
            if is_time and self._grows is None and not self.is_quiet:
                self._look_for_growth(device)
                self._look_for_drift(device)
            if device.over(self._expected):
                self._alarm("watch/over-plan", device, expected=self._expected, reserved=device.peak_reserved)
        if self._grows is not None:
            self._see_growth(now)
        if len(self._said) > self._n_told and SOON <= now - self._asked_at:
            self._asked_at = now
            self.read_told()
        if is_late:
            self._looked_at = now
            self._look_around()

    def _look_around(self) -> None:
        for device in self._devices:
            if device.room_is_unknown:
                continue
            taken = device.neighbour(self._expected)
            if taken is not None:
                self._alarm("watch/neighbour", device, taken=taken, free=device.free, uuid=self._uuid(device))
            useless = device.fragmentation()
            if useless is not None:
                self._alarm("watch/fragmentation", device, useless=useless, retries=device.retries)
        self._name_categories()
        if not self.is_quiet:  # A look is an event in what is recorded.
            self._holes.look()
        self.read_told()
        self._write_status()
        if not self.is_quiet:
            self._trackers.tell(self._step, self._devices, self._told)

    def _look_for_growth(self, device: Device) -> None:
        if ("watch/growth", device.index) in self._said or self._step < self._not_before:
            return
        rise = device.growth()
        if rise is None or not device.lives.still_rises:
            return
        left = device.runs_out_in(rise)
        if self._is_filling(device, rise):
            return
        steps = min(max(FEWEST_SEEN, 3 * device.lives.between_rises), MOST_SEEN, max(left // 4, 3))
        self._grows = (device, rise, self._step + steps, time.perf_counter() + SECONDS_SEEN)
        self._given, self._modules.given = [], 0
        self._sampling.insist(True)

    def _look_for_drift(self, device: Device) -> None:
        if not self._said.isdisjoint([("watch/growth", device.index), ("watch/drift", device.index)]):
            return
        rise = device.drift() if self._grows is None else None
        if rise is not None:
            self._alarm(
                "watch/drift",
                device,
                per_step=int(rise.per_step),
                needed=device.peak_allocated,
                since=rise.first,
                runs_out_at=self._step + device.runs_out_in(rise),
            )

    def _is_filling(self, device: Device, rise: Rise) -> bool:
        """Whether queues that will be full explain it, and fit. Asked now and then: it takes a look at
        everything that Python has."""
        if self._step < self._filling_until:
            return True
        to_come, before = bounds.still_to_come(self._torch), self._to_come
        self._to_come = to_come
        if device.room - device.peak_allocated <= to_come:
            return False
        # One that has not been filled meanwhile does not explain it.
        if to_come < A_FEW * rise.per_step if before is None else before <= to_come:
            return False
        steps = int(to_come / rise.per_step)
        # Once it is full it takes a while to see that nothing rises any more.
        steps = steps // 4 if 4 * A_FEW < steps else steps + rise.steps // 4
        self._filling_until = self._step + max(steps, A_FEW)
        return True

    def _see_growth(self, now: float) -> None:
        if self._grows is None:
            return
        device, rise, until, latest = self._grows
        self._given.append(self._modules.given or 0)
        self._modules.given = 0
        if self._step < until and now < latest:
            return
        self._grows = self._modules.given = None
        # The first of these steps had begun when the look did.
        is_of_batches = rise.may_be_batches and (len(set(self._given[1:])) != 1 or not self._given[-1])
        # It may have been full meanwhile.
        if is_of_batches or not device.lives.still_rises:
            self._not_before = 2 * self._step if is_of_batches else self._step + self._step // 4
            self._sampling.insist(False)
            return
        name = "look-%d-%d" % (os.getpid(), self._step)
        began = time.perf_counter()
        try:
            is_left = self._sampling.is_full and self._leave(os.path.join(self._recording.session, name))
        finally:
            self._sampling.insist(False)
        self._alarm(
            "watch/growth",
            device,
            per_step=int(rise.per_step),
            grown=int(rise.amount),
            since=rise.first,
            runs_out_at=self._step + device.runs_out_in(rise),
            look=name if is_left else None,
            seconds_to_look=round(time.perf_counter() - began, 3),
        )
        self._ended_at = None  # What that took is no step's.

    def _alarm(self, code: str, device: Device, **fields: Any) -> None:
        if self.is_quiet or (code, device.index) in self._said:
            return
        self._said.add((code, device.index))
        self._recording.write(
            "alarm",
            code=code,
            step=self._step,
            device=device.index,
            room=device.room,
            allocated=device.allocated,
            reserved_now=device.reserved,
            unix=round(time.time(), 3),
            **fields
        )

    def _name_categories(self) -> None:
        """What parameters, gradients and states take: at steps that are ever further apart."""
        if self._step < 2 * self._named_at:
            return
        self._named_at = self._step
        found: dict[int, dict[str, int]] = {}
        seen: set[int] = set()

        def add(kind: str, tensor: Tensor | None) -> None:
            if isinstance(tensor, self._torch.Tensor) and tensor.is_cuda and id(tensor) not in seen:
                seen.add(id(tensor))
                of = found.setdefault(tensor.get_device(), dict.fromkeys(("parameters", "gradients", "optimizer"), 0))
                of[kind] += tensor.numel() * tensor.element_size()

        for optimizer in self._optimizers():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    add("parameters", parameter)
                    add("gradients", parameter.grad)
            for state in list(optimizer.state.values()):
                for value in state.values() if isinstance(state, dict) else ():
                    add("optimizer", value)
        self._categories = found

    def _size_of_told(self) -> int:
        try:
            return os.path.getsize(os.path.join(self._recording.session, "told.jsonl"))
        except OSError:
            return 0

    @guarded
    def read_told(self) -> None:
        """What was made of our alarms."""
        try:
            with open(os.path.join(self._recording.session, "told.jsonl"), "rb") as file:
                file.seek(self._read_to)
                lines = file.read().rpartition(b"\n")[0]
        except OSError:
            return
        self._read_to += len(lines) + bool(lines)
        for line in lines.splitlines():
            alarm = json.loads(line)
            if alarm.get("pid") == os.getpid():
                self._n_told += 1
                self._told.append(alarm)
                for heard in list(self.hearers):
                    heard(alarm)
        del self._told[:-MOST_ALARMS]

    def _write_status(self) -> None:
        self._status.write(
            updated=time.time(),
            step=self._step,
            seconds_per_step=statistics.median(self._seconds) if self._seconds else None,
            devices=[self._device(it) for it in self._devices if not it.room_is_unknown],
            expected_peak=self._expected,
            alarms=self._told,
            raises_alarms=not self.is_quiet,
        )

    def _uuid(self, device: Device) -> str | None:
        uuid = getattr(self._torch.cuda.get_device_properties(device.index), "uuid", None)
        return "GPU-%s" % uuid if uuid is not None else None

    def _device(self, device: Device) -> Named:
        categories = self._categories.get(device.index, {})
        if categories:
            categories = dict(categories, other=max(device.allocated - sum(categories.values()), 0))
        return {
            "uuid": self._uuid(device),
            "index": device.index,
            "total": device.total,
            "allocated": device.allocated,
            "reserved": device.reserved,
            "active": device.active,
            "inactive_split": device.split,
            "peak_allocated": device.peak_allocated,
            "peak_reserved": device.peak_reserved,
            "retries": device.retries,
            "ooms": device.ooms,
            "largest_free": self._holes.largest(device.index),
            "growth_per_step": device.pace(),
            "categories": categories,
        }
