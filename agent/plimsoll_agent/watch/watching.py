"""Starts and ends the watcher of this process, and reports steps to it.

Few runs are watched, so few import the watcher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from plimsoll_agent.kinds import Torch
    from plimsoll_agent.run.memory import Memory
    from plimsoll_agent.run.modules import Modules
    from plimsoll_agent.run.phases import Phases
    from plimsoll_agent.run.recording import Recording
    from plimsoll_agent.run.sampling import Sampling
    from plimsoll_agent.run.training_steps import Steps
    from plimsoll_agent.watch.watcher import Watcher


class Watching:
    """At most one watcher at a time."""

    def __init__(
        self,
        torch: Torch,
        recording: Recording,
        memory: Memory,
        phases: Phases,
        steps: Steps,
        sampling: Sampling,
        modules: Modules,
        last_steps: Callable[[str], bool],
        is_real: bool,
    ) -> None:
        self._torch, self._recording, self._memory, self._phases = torch, recording, memory, phases
        self._steps, self._sampling, self._last_steps, self._is_real = steps, sampling, last_steps, is_real
        self._modules = modules
        self._watcher: Watcher | None = None
        self._is_always_seen = False
        self._label: str | None = None

    @property
    def is_on(self) -> bool:
        """Whether this process is watched already."""
        return self._watcher is not None and not self._watcher.is_quiet

    def is_asked_for(self, how: str, label: str | None, expected: int | None) -> None:
        """How the program that started the run watches it: "status" for what `plimsoll top` shows alone; empty for not at all."""
        self._is_always_seen, self._label = how == "status", label
        if how:
            self.begin(label, expected, self._is_always_seen)

    def begin(self, label: str | None, expected: int | None, is_quiet: bool = False) -> Watcher | None:
        """Watches this process from now on; the watcher. `expected`: bytes that PyTorch is to reserve at most, or None. One that is
        there already stays as it is, if it is not quiet: one that raises no alarms. None where nothing is real: on the phantom."""
        if self._watcher is not None and self._watcher.is_quiet and not is_quiet:
            self._watcher.finish()
            self._watcher = None
        if self._watcher is None and self._is_real:
            from plimsoll_agent.watch import watcher

            parts = (self._torch, self._recording, self._sampling, self._modules, self._steps.optimizers, self._last_steps)
            self._watcher = watcher.Watcher(*parts, label=label, expected=expected, is_quiet=is_quiet)
            self._steps.watching = self._watcher.step_ended
            if self._memory.started:
                self._watcher.start()
        return self._watcher

    def stop(self) -> None:
        """Until `begin` is called again."""
        self.finish()
        self._steps.watching = self._watcher = None
        if self._is_always_seen:
            # `plimsoll top` sees it as before.
            self.begin(self._label, None, is_quiet=True)

    def step_by_hand(self, step: int) -> None:
        """A step has ended because the program says so; what counted as a step before does no longer."""
        if self._watcher is not None and self._memory.started:
            self._steps.watching = None
            place = self._memory.place()
            self._phases.end_of_step(step, place, self._recording.seconds())
            self._watcher.step_ended(step, place)

    def cuda_started(self) -> None:
        """There is something to see from now on."""
        if self._watcher is not None:
            self._watcher.start()

    def forked(self) -> None:
        """In a forked child."""
        if self._watcher is not None:
            self._watcher.forked()

    def finish(self) -> None:
        """The process ends."""
        if self._watcher is not None:
            self._watcher.finish()
