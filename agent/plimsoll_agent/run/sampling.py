"""Stacks and modules in some steps only, where seeing them in all would slow training down.

A step that waits for the device has time to spare; one that waits for Python has none, and PyTorch walks the
Python stack at each allocation. So it is measured on the spot: after the first steps, which make what lives
longest, every fourth step is seen in full, and the others without stacks, without module paths and without marks
of phases. What the full ones take longer is their cost. If that is within the bound, all steps are full from there
on; otherwise so few that it is, on average. Each full step is measured anew. Events are recorded in every step.

Full steps are those whose number a power of two divides, so that the ranks of a job, which wait for each other, take
theirs together though each measures for itself.

A step is measured by the host's clock between the ends of steps. A host that runs ahead of its device looks as if
it waited for Python; once the device's queue is full it no longer does, and then the cost is seen to be gone.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from typing import TYPE_CHECKING

from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from plimsoll_agent.run.memory import Memory
    from plimsoll_agent.run.modules import Modules
    from plimsoll_agent.run.phases import Phases
    from plimsoll_agent.run.recording import Recording

ALL, SAMPLED, NONE = "all", "sampled", "none"
ASLEEP = "asleep"
"""Nothing is recorded, until a recording is asked for."""

FIRST = 4
"""Steps at the beginning that are seen in full: parameters, gradients and optimizer state are made in them."""

ROUNDS = 5
"""Full steps that are compared with their neighbours before it is decided, and at any time after."""

MOST = 0.01
"""What full steps may cost, as a share of a step, if all are."""

AIM = 0.005
"""What they shall cost on average otherwise; the rest of the bound is for what is recorded in each step."""

SHORTEST, LONGEST = 4, 1024
"""Steps from one full one to the next. Not 2: the first step after a change refills Python's caches, so its time is not typical."""

FORWARDS = 3
"""Top-level calls that are seen in full when a model is switched to evaluation or back, out of turn."""


class Sampling:
    """Which steps are seen in full."""

    def __init__(self, memory: Memory, phases: Phases, modules: Modules, recording: Recording, choice: str) -> None:
        self._memory = memory
        self._phases = phases
        self._modules = modules
        self._recording = recording
        self._choice = choice if choice in (SAMPLED, NONE, ASLEEP) else ALL
        memory.asleep = self._choice == ASLEEP
        self._begin()

    def _begin(self) -> None:
        self._full = True
        self._settled = self._choice != SAMPLED
        self._every = SHORTEST
        self._ended_at: float | None = None
        # What the last step lasted, if it was a light one.
        self._light: float | None = None
        self._costs: deque[float] = deque(maxlen=ROUNDS)
        self._out_of_turn = 0
        self._forwards_left: int | None = None
        self._insists = False

    def install(self) -> None:
        """Takes its places in PyTorch, if there is anything to choose."""
        if self._choice == SAMPLED:
            self._modules.call_ended = self._call_ended
            self._modules.watch_modes(self._mode_changed)

    def cuda_started(self) -> None:
        """The history has just begun, with stacks."""
        if self._choice in (NONE, ASLEEP):
            self._see(False)

    def forked(self) -> None:
        """In a forked child: its steps are its own."""
        self._modules.watch(True)
        self._phases.marking = True
        self._begin()

    @property
    def is_full(self) -> bool:
        """Whether the step that is under way is seen in full."""
        return self._full

    def insist(self, insists: bool) -> None:
        """From now on each step is seen in full, or those again that are worth it; nothing where none is to be."""
        self._insists = insists
        if self._choice == ASLEEP:
            self._see(insists)
        elif insists and not self._settled:
            self._forwards_left = None
            self._see(True)

    def wake(self) -> None:
        """From now on each step is recorded in full: a recording was asked for."""
        if self._choice == ASLEEP:
            self._choice = ALL
            self._memory.wake()
            self._see(True)

    @guarded
    def step_ended(self, step: int) -> None:
        """After each step of the program."""
        if self._insists:
            self._light = self._ended_at = None
            return
        if self._settled or not self._memory.started:
            return
        now = time.perf_counter()
        lasted, self._ended_at = now - (self._ended_at or now), now
        if self._light and step % self._every == 0:
            self._measured(lasted / self._light - 1.0)
        was_light = not self._full and self._forwards_left is None
        self._light = lasted if was_light else None
        self._forwards_left = None
        self._see(self._settled or step < FIRST or (step + 1) % self._every == 0)

    def _measured(self, cost: float) -> None:
        self._costs.append(cost)
        if len(self._costs) < ROUNDS:
            return
        cost = statistics.median(self._costs)
        if cost <= MOST:
            self._settled = True
            return
        wanted = 1 << (math.ceil(cost / AIM) - 1).bit_length()
        self._every = min(max(wanted, SHORTEST), LONGEST)
        self._recording.note(
            "sampled-stacks",
            "plimsoll recorded stacks in some steps only, because they slow each step down (--stacks all records them in every "
            "step); other steps that allocated in the same order show the lines and phases of the nearest recorded step",
        )

    @guarded
    def _mode_changed(self) -> None:
        """A model goes from training to evaluation or back in the middle of a light step: something new may follow."""
        if not self._full and self._out_of_turn * self._every <= self._phases.step:
            self._out_of_turn += 1
            self._forwards_left = FORWARDS
            self._see(True)

    def _call_ended(self) -> None:
        """A top-level call of a module returned."""
        if self._forwards_left:
            self._forwards_left -= 1
            if self._forwards_left == 0:
                self._see(False)

    def _see(self, full: bool) -> None:
        if full == self._full:
            return
        self._full = full
        self._memory.keep_stacks(full)
        self._modules.watch(full)
        self._phases.marking = full
        self._phases.keeps_steps = full or self._choice != ASLEEP
        self._recording.write("stacks", kept=full, **self._memory.place().where())
