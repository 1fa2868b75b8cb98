"""Forward, backward, optimizer, zero_grad, evaluation, saving, merging: where each begins and ends in the trace.

Phases are those of one thread, the one that trains. A phase inside a phase is marked only under
"optimizer", because there the closure (LBFGS, Lightning) is the real step; recomputation during
backward and optimizers that step inside backward belong to backward. What other threads do while a
phase is open (the autograd engine, DataParallel) belongs to that phase.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from plimsoll_agent.run import host
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from plimsoll_agent.run.memory import Memory, Place
    from plimsoll_agent.run.recording import Recording

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
ZERO_GRAD, EVALUATION = "zero_grad", "evaluation"
SAVING, MERGING = "saving", "merging"

MOST_MARKS = 20_000
"""So many are written; a loop over time steps calls a model often. Then come the ends of steps, and up to as many marks again of a step that has
more passes than any before it: an evaluation after a long epoch."""


class Phases:
    """The phases that are open now, and their marks in the recording."""

    def __init__(self, memory: Memory, recording: Recording) -> None:
        self._memory = memory
        self._recording = recording
        self._open: list[str] = []
        # Those of `_open` whose begin was marked; their end is, too.
        self._marked: list[bool] = []
        self.marking = self.keeps_steps = True
        self._thread: int | None = None
        self._written = 0
        self._has_said_so = False
        self._trained = False
        # How often models were called since the last step without gradients, and in evaluation mode; and how many calls with
        # gradients waited for a backward pass, now and at most.
        self._evaluations = self._in_evaluation_mode = self._waiting = self._most_waiting = 0
        # The most of them in any step before this one, of evaluations and of calls that waited.
        self._most_evaluations = self._most_waiting_before = 0
        self.is_set_aside = False
        """Whether what runs prepares something for a library, and is no part of training or of an evaluation."""
        self.n_backwards = 0
        """Backward passes so far."""
        self.went_back_on_device = False
        """Whether a backward pass allocated on a device since this was last set to False."""
        self._allocs_at_begin: int | None = None
        self.step = 0

    @property
    def current(self) -> str | None:
        """The innermost open phase, None outside."""
        return self._open[-1] if self._open else None

    @property
    def thread(self) -> int | None:
        """The thread that the open phase runs in; its Python stack is the user's."""
        return self._thread

    def forked(self) -> None:
        """In a forked child: no phase is open, also if the parent was in one."""
        del self._open[:]
        del self._marked[:]
        self._thread = None

    @guarded
    def begin(self, phase: str, mode: str | None = None) -> bool:
        """Marks the begin of `phase`; False if it is part of the phase that is already open.

        `mode` is the mode of a model in a forward phase: in evaluation mode it is training only if backward comes,
        which the reader of the recording knows.
        """
        if self.is_set_aside:
            return False
        thread = threading.get_ident()
        if self._open and (self._thread != thread or self._open[-1] != OPTIMIZER or phase == OPTIMIZER):
            return False
        self._thread = thread
        self._open.append(phase)
        self._marked.append(self.marking)
        self._count(phase, mode)
        if not self.marking:
            return True
        if phase == FORWARD and not self._trained:
            self._trained = True
            self._mark("training_begin", None)
        place = self._mark("phase_begin", phase, mode)
        if place is None and self._is_full:
            self._marked[-1] = False
        if place is None and phase == EVALUATION:
            place = self._memory.place()
        self._allocs_at_begin = sum(place.allocs) if place is not None else None
        return True

    def _count(self, phase: str, mode: str | None) -> None:
        self._evaluations += phase == EVALUATION
        self.n_backwards += phase == BACKWARD
        self._in_evaluation_mode += phase == FORWARD and mode == EVALUATION
        # A backward pass may go through all that was called before it. A penalty has several in a step, and one call.
        self._waiting = 0 if phase == BACKWARD else self._waiting + (phase == FORWARD)
        self._most_waiting = max(self._most_waiting, self._waiting)

    def calls_beside_training(self) -> tuple[int, int, int]:
        """How often models were called since `forget_calls`: (without gradients, in evaluation mode, before any backward pass
        came, at most). With a backward pass they are the same numbers in each step, and no larger in a part of one."""
        return self._evaluations, self._in_evaluation_mode, self._most_waiting

    def forget_calls(self) -> None:
        """The next step begins."""
        self._most_evaluations = max(self._most_evaluations, self._evaluations)
        self._most_waiting_before = max(self._most_waiting_before, self._most_waiting)
        self._evaluations = self._in_evaluation_mode = self._waiting = self._most_waiting = 0

    @guarded
    def end(self, phase: str) -> None:
        """Marks the end of `phase`, which `begin` answered True for."""
        if self._open and self._open[-1] == phase:
            self._open.pop()
            place = self._mark("phase_end", phase) if self._marked.pop() else None
            if place is None and phase == EVALUATION:
                place = self._memory.place()  # So many are marked already that no more are.
            before = self._allocs_at_begin
            is_of_device = place is None or before is None or before != sum(place.allocs)
            if phase == BACKWARD:
                self.went_back_on_device |= is_of_device and self._memory.started
            elif phase == EVALUATION and not is_of_device:
                self._evaluations -= 1  # Of a model on the CPU.

    def end_of_step(self, step: int, place: Place, seconds: float) -> None:
        """A step is over; `place` may lie a little back in time."""
        self.step = step
        if self.keeps_steps:
            of_host = place.host or host.at_step(step)
            self._write("step_end", None, step, place, seconds, **of_host)

    @property
    def _is_full(self) -> bool:
        return self._written >= MOST_MARKS

    def _is_new(self) -> bool:
        """Whether more passes came in this step than in any before: it is another thing than training."""
        is_more = self._evaluations > self._most_evaluations or self._waiting > self._most_waiting_before
        return 0 < self._most_waiting_before and is_more

    def _mark(self, what: str, phase: str | None, mode: str | None = None) -> Place | None:
        is_begin = what == "phase_begin"
        if self._is_full and is_begin and (not self._is_new() or self._written >= 2 * MOST_MARKS):
            if not self._has_said_so:
                self._has_said_so = True
                self._recording.note(
                    "many-phases", "after %d phase marks plimsoll recorded only the ends of steps" % MOST_MARKS
                )
            return None
        self._written += 1
        if not self._memory.started:
            return None
        place, seconds = self._memory.place(), self._recording.seconds()
        self._write(what, phase, self.step, place, seconds, **({"mode": mode} if mode else {}))
        return place

    def _write(self, what: str, phase: str | None, step: int, place: Place, seconds: float, **more: Any) -> None:
        self._recording.write("mark", what=what, step=step, phase=phase, t=seconds, **place.fields(), **more)
