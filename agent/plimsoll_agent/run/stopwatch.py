"""How long steps take, as the device sees it: an event on its stream at the end of each step.

On only when asked for (`PLIMSOLL_MEASURE`). Nothing waits for an event: the time between two of them is read when both
have passed, a step or more later.
"""

from __future__ import annotations

import collections
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Torch
    from plimsoll_agent.run.recording import Recording

WARM_UP = 3
"""Steps that are left out: kernels are compiled and tuned in them."""

MOST = 20_000


class Stopwatch:
    """The times of this process's steps."""

    def __init__(self, torch: Torch, recording: Recording) -> None:
        self._torch = torch
        self._recording = recording
        self._pending: collections.deque[tuple[int, Any]] = collections.deque()
        self._last: Any = None
        self._host: list[float]
        self._device: list[float]
        self._device, self._host = [], []
        self._host_last: float | None = None

    def step_ended(self, step: int) -> None:
        """After each step of the program."""
        now = time.perf_counter()
        if step > WARM_UP and self._host_last is not None and len(self._host) < MOST:
            self._host.append(now - self._host_last)
        self._host_last = now
        if not self._torch.cuda.is_initialized() or self._torch.cuda.is_current_stream_capturing():
            return
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        self._pending.append((step, event))
        self._harvest()

    def _harvest(self) -> None:
        while self._pending:
            step, event = self._pending[0]
            if not event.query():
                return
            self._pending.popleft()
            if step > WARM_UP and self._last is not None and len(self._device) < MOST:
                self._device.append(self._last.elapsed_time(event) / 1e3)
            self._last = event

    def write(self) -> None:
        """At the end of the process. What the device has not done by now is not waited for: it may have failed."""
        try:
            self._harvest()
        except RuntimeError:
            pass
        device, host = _summary(self._device), _summary(self._host)
        if host is not None:
            self._recording.write("step_times", device=device, host=host, left_out=WARM_UP)


def _summary(seconds: list[float]) -> dict[str, float] | None:
    if not seconds:
        return None
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 9)

    return {"count": len(ordered), "median": at(0.5), "low": at(0.1), "high": at(0.9)}
