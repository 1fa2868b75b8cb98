"""What one training step is, for any number of optimizers.

A step ends when every optimizer of the program has stepped. That is the plain loop, the GAN with two
optimizers, the critic that steps five times for each step of its generator, and the program that has
an optimizer for every parameter and steps them inside backward. Optimizers are known from when they
are made; one that never steps is waited for only so long.

A program without `torch.optim` is counted by its backward passes, and one without these by its
top-level forward passes. Those counts are kept aside and written only at the end, since an optimizer
may still come.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from plimsoll_agent.run import extent, host, intervals
from plimsoll_agent.run.guard import guarded
from plimsoll_agent.run.steady import MOST_SECONDS, Steadiness

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

    from plimsoll_agent.kinds import Line, Named, Note, Optimizer
    from plimsoll_agent.run.later import Later
    from plimsoll_agent.run.memory import Memory, Place
    from plimsoll_agent.run.phases import Phases
    from plimsoll_agent.run.recording import Recording
    from plimsoll_agent.run.stopping import Stopping

PATIENCE = 16
"""How often the first optimizer may step while another never does."""

PATIENCE_WITHOUT_STEP = 64
"""How many backward passes may go by while an optimizer exists that never steps."""

LOOKED_AT = 3
"""The step at whose end the loops around it are looked at."""

ENOUGH_BACKWARDS = 12
"""How many backward passes show that a program without an optimizer will not make one."""

SECONDS_ON_HOST = 20.0
"""How long a program may train on the CPU before it is ended: it may use the GPU afterwards."""

ENOUGH_FORWARDS = 200
"""How many forward passes show that a program never trains: it may evaluate before it does."""

LOOKS = (8, 24)
"""After so many steps, if memory still rises, it is looked who keeps it: a script of few steps ends by itself, and its functions have no variables then."""


class Goal(NamedTuple):
    """What PLIMSOLL_STOP asks for."""

    stop: int | str
    """"steady", "validation", "until-exit" or a number of steps; "one-validation" is one without a look whether memory rises some steps later."""
    enough: int | None = None
    """After so many steps an evaluation is looked for, whether memory is steady or not."""


def goal_of(text: str, note: Note) -> Goal:
    kind, _, number = text.partition(":")
    count = int(number) if number.isdigit() else 0
    if kind == "steps" and count:
        return Goal(count)
    if kind == "one-validation" and count:
        return Goal(kind, count)
    if text in ("steady", "validation", "one-validation", "until-exit"):
        return Goal(text)
    note("stop", "plimsoll does not understand PLIMSOLL_STOP=%s; the run stops once memory is steady" % text)
    return Goal("steady")


class Steps:
    """Counts steps and asks for the end of the run when it has seen enough."""

    def __init__(self, memory: Memory, phases: Phases, recording: Recording, stopping: Stopping, goal: Goal, hopeless: tuple[int, int]) -> None:
        self._memory = memory
        self._phases = phases
        self._recording = recording
        self._stopping = stopping
        self._most, self._least_steps = hopeless
        self.goal, self._enough = goal
        self._held = False
        self.later: Later | None = None
        self._optimizers: dict[int, weakref.ref[Optimizer]] = {}
        self._made_one = False
        self._made_at: dict[int, extent.Where] = {}
        """Where the optimizers were made that are alive."""
        self._covered: dict[int, tuple[int, set[int]]] = {}
        self._stepped: dict[int, int] = {}
        self._given_up_on: set[int] = set()
        self._waiting: list[tuple[Place, float]] = []
        self._stepping = threading.local()
        self._begin_counting()
        self.before_stop: Callable[[], object] | None = None
        self.after_step: Callable[[int], object] | None = None
        # Called for each step with its number and its place, for each way of counting steps.
        self.watching: Callable[[int, Place], object] | None = None
        self.last: deque[tuple[int, Place, float]] = deque(maxlen=4096)
        """Then the last of the steps whose marks are not written yet."""

    def _begin_counting(self) -> None:
        self._by_optimizer = Steadiness()
        self._by_host = Steadiness()
        self._by_backward = Steadiness()
        self._by_forward = Steadiness()
        self._kept_aside: dict[int, list[tuple[Place, float]]] = {id(self._by_backward): [], id(self._by_forward): []}
        self.why: str | None = None
        self._was_steady = False
        self.ahead: Named = extent.NOT_KNOWN
        """What the script's own loops come to; see `extent`."""
        self.after_the_loops: Line | None = None
        """Where the script would have gone on to compute, of a run that was ended in its loops."""
        self._first_made: tuple[CodeType, int] | None = None
        self._turns_before: tuple[int, int] | None = None
        """Steps and turns of these loops at the first look; None where nothing tells the turns, so that a second look has nothing to compare."""
        self._stores_at: tuple[int, Line] | None = None
        """After how many steps the script stores something again, and where; see `intervals.longest_that_stores`."""

    def forked(self) -> None:
        """In a forked child: its steps are its own."""
        self._begin_counting()
        self._made_one = False
        self._optimizers.clear()
        self._made_at.clear()
        self._covered.clear()
        self._stepped.clear()
        self._given_up_on.clear()
        del self._waiting[:]

    @property
    def _counted(self) -> Steadiness:
        of_device = (self._by_optimizer, self._by_backward, self._by_forward)
        if self._by_host.steps and not (self._memory.started and any(it.steps for it in of_device)):
            return self._by_host
        # With an optimizer a backward pass is not a step yet: it may have run out before the first.
        awaited = self._made_one and self._by_backward.steps < PATIENCE_WITHOUT_STEP
        if self._by_optimizer.steps or awaited:
            return self._by_optimizer
        return self._by_backward if self._by_backward.steps else self._by_forward

    @property
    def done(self) -> int:
        """How many steps the run has finished."""
        return self._counted.steps

    @property
    def steady(self) -> bool:
        """Whether memory was steady at the end of the last step, or before what comes later."""
        return self._counted.steady or self._was_steady

    @property
    def has_optimizer(self) -> bool:
        """Whether `torch.optim` was used at all."""
        return self._made_one

    def rise(self) -> bool:
        """Whether more and more lived, step by step or turn by turn."""
        return self._counted.rises or self.later is not None and self.later.a_turn_left_something

    def optimizers(self) -> list[Optimizer]:
        """The optimizers that are alive."""
        return [o for o in (reference() for reference in list(self._optimizers.values())) if o is not None]

    @guarded
    def optimizer_made(self, optimizer: Optimizer) -> None:
        key = id(optimizer)
        self._made_one = True
        if key not in self._optimizers:
            self._optimizers[key] = weakref.ref(optimizer, lambda _: self._forget(key))
            self._made_at[key] = where = extent.here()
            self._a_turn_begins(where)

    def _a_turn_begins(self, where: extent.Where) -> None:
        """If the line that made the first of the optimizers makes one again, in a loop of which each turn does."""
        steps, first = self._by_optimizer.steps, self._first_made
        if first is None:
            self._first_made = where[0][1:] if where else None
        elif steps and self.later is not None and where and where[0][1:] == first:
            self.later.a_turn_begins(steps, self._by_optimizer.lived)

    @guarded
    def _forget(self, key: int) -> None:
        self._optimizers.pop(key, None)
        self._made_at.pop(key, None)
        self._covered.pop(key, None)

    @guarded
    def optimizer_begins(self) -> None:
        """An optimizer's `step` begins; one may call another's."""
        depth = self._stepping
        depth.count = getattr(depth, "count", 0) + 1

    @guarded
    def optimizer_leaves(self) -> bool:
        """It returned or raised. True for the outermost."""
        self._stepping.count -= 1
        return self._stepping.count == 0

    @guarded
    def optimizer_stepped(self, optimizer: Optimizer, outermost: bool) -> None:
        """An optimizer's `step` returned."""
        self.optimizer_made(optimizer)
        if self._phases.is_set_aside:
            return
        if self._is_of_host(optimizer):
            self._given_up_on.add(id(optimizer))
            self._host_step_ended()
            return
        again = id(optimizer) in self._stepped
        self._stepped.setdefault(id(optimizer), len(self._stepped))
        if not outermost:
            return
        place, seconds = None, self._recording.seconds()
        missing = self._missing()
        if missing:
            first = self._stepped[id(optimizer)] == 0
            if not (again and first):
                return
            self._waiting.append((self._memory.place(), seconds))
            if len(self._waiting) < PATIENCE:
                return
            self._give_up_on(missing)
            return
        del self._waiting[:]
        place = place or self._memory.place()
        self._stepped.clear()
        self._optimizer_step_ended(place, seconds)

    def _is_of_host(self, optimizer: Optimizer) -> bool:
        """Whether it trains a model on the CPU: no parameter of it is on a device, and no backward pass ran there. One whose parameters
        are offloaded steps for a backward pass on the device."""
        if self._memory.started and self._phases.went_back_on_device:
            return False
        return not any(p.device.type != "cpu" for group in optimizer.param_groups for p in group["params"])

    def _host_step_ended(self) -> None:
        """A program that trains on the CPU first, or only."""
        counted = self._by_host
        counted.step_ended(self._memory.place())
        if isinstance(self.goal, int) or counted.seconds_since_third_step() >= SECONDS_ON_HOST:
            self._stop_if_enough(counted, True)

    def _missing(self) -> list[int]:
        """The optimizers that have not stepped since the last step ended, and have something to do."""
        absent = [
            key for key in self._optimizers if key not in self._stepped and key not in self._given_up_on
        ]
        if not absent:
            return []
        done = set()
        for key in self._stepped:
            done |= self._parameters_of(key)
        return [key for key in absent if not self._parameters_of(key) <= done]

    def _parameters_of(self, key: int) -> set[int]:
        reference = self._optimizers.get(key)
        optimizer = reference() if reference is not None else None
        if optimizer is None:
            return set()
        groups = optimizer.param_groups
        size = sum(len(group["params"]) for group in groups)
        known = self._covered.get(key)
        if known is None or known[0] != size:
            known = (size, {id(p) for group in groups for p in group["params"] if p.requires_grad})
            self._covered[key] = known
        return known[1]

    def _give_up_on(self, missing: list[int]) -> None:
        self._given_up_on.update(missing)
        self._recording.note(
            "optimizer-unused",
            "%d optimizer(s) did not step while another stepped %d times; plimsoll counts steps without them"
            % (len(missing), PATIENCE),
        )
        waiting, self._waiting = self._waiting, []
        self._stepped.clear()
        for place, seconds in waiting:
            self._optimizer_step_ended(place, seconds, stop=place is waiting[-1][0])

    def _optimizer_step_ended(self, place: Place, seconds: float, stop: bool = True) -> None:
        counted = self._by_optimizer
        counted.step_ended(place)
        self._phases.went_back_on_device = False
        self._phases.end_of_step(counted.steps, place, seconds)
        if self.later is not None:
            self.later.step_ended()
        if self.after_step is not None:
            self.after_step(counted.steps)
        if self.watching is not None:
            self.watching(counted.steps, place)
        self._stop_if_hopeless()
        if stop:
            self._stop_if_enough(counted, True)

    def hold(self) -> None:
        """From now on memory that is steady ends no run."""
        self._held = True

    def release(self) -> None:
        self._held = False

    def _stop_if_hopeless(self) -> None:
        """A candidate that took more than there is does not have to show the rest."""
        if not self._most or self._stopping.requested or self.done < self._least_steps:
            return
        most = max((allocated for allocated, _ in self._memory.place().peaks), default=0)
        if self._most < most:
            self.why = "hopeless"
            self._recording.write("hopeless", allocated=most)
            self._stopping.request()

    @guarded
    def backward_ended(self) -> None:
        """The outermost backward pass returned."""
        self._stop_if_hopeless()
        if self._by_optimizer.steps:
            return
        counted = self._by_backward
        self._keep_aside(counted, self._memory.place())
        if not self._optimizers:
            if self.later is not None:
                self.later.step_ended()
            self._stop_without_optimizer(counted, ENOUGH_BACKWARDS)
        elif counted.steps >= PATIENCE_WITHOUT_STEP and counted.seconds_since_third_step() >= MOST_SECONDS:
            self._stop_if_enough(counted, False)

    @guarded
    def forward_ended(self) -> None:
        """A top-level forward pass returned."""
        if self._by_optimizer.steps or self._by_backward.steps or self._optimizers:
            return
        counted = self._by_forward
        place = self._memory.place()
        if counted.has_moved(place):  # Else it prepared a picture on the host, as torchvision's transforms do.
            self._keep_aside(counted, place)
            self._stop_without_optimizer(counted, ENOUGH_FORWARDS)

    def _stop_without_optimizer(self, counted: Steadiness, enough: int) -> None:
        # Steps that are not an optimizer's end the run late: one may still come.
        if counted.steps >= enough:
            self._stop_if_enough(counted, True)
        elif counted.seconds_since_third_step() >= MOST_SECONDS:
            self._stop_if_enough(counted, False)

    def _keep_aside(self, counted: Steadiness, place: Place) -> None:
        counted.step_ended(place)
        kept = self._kept_aside[id(counted)]
        if len(kept) < 10_000:
            place.host = host.at_step(counted.steps)
            kept.append((place, self._recording.seconds()))
        if self.watching is not None and not self._made_one:
            self.last.append((counted.steps, place, self._recording.seconds()))
            self.watching(counted.steps, place)

    def write_kept_aside(self) -> None:
        """At the end: the steps of a program without optimizer."""
        counted = self._counted
        for step, (place, seconds) in enumerate(self._kept_aside.get(id(counted), []), start=1):
            self._phases.end_of_step(step, place, seconds)
        if counted.steps and counted not in (self._by_optimizer, self._by_host):
            what = "backward" if counted is self._by_backward else "forward"
            self._recording.note(
                "steps-by-%s" % what, "no optimizer stepped; plimsoll counted each %s pass as a step" % what
            )
        self._kept_aside.clear()

    @guarded
    def _find_the_end(self, counted: Steadiness) -> None:
        """Looks how far the script would go, while a step of it is on the stack."""
        steps = counted.steps
        is_first = steps == LOOKED_AT
        if counted is self._by_forward or not is_first and (self._turns_before is None or steps & (steps - 1)):
            return
        self.ahead, done = extent.of_this_step(steps, None if is_first else self._turns_before, self._made_at.values())
        if is_first:
            self._turns_before = (steps, done) if done is not None else None
            self._stores_at = intervals.longest_that_stores()
            counted.stores_every = self._stores_at[0] if self._stores_at is not None else 0
            if self.later is not None:
                self.later.steps_in_an_epoch = self.ahead["turns"]
                if self.goal == "validation":
                    self.later.anew = self.ahead["anew"]

    @staticmethod
    def _each_evaluation_leaves_as_much(counted: Steadiness, later: Later) -> bool:
        rises = counted.rises_rarely()
        return bool(rises) and later.saw_each_leave_as_much(rises, [counted.left_by(step) for step in rises])

    def _stop_if_enough(self, counted: Steadiness, steady_counts: bool) -> None:
        if self._stopping.requested or self._held or self.goal == "until-exit":
            return
        self._find_the_end(counted)
        if counted.steady and steady_counts:
            self._stopping.soon_after_the_script()
        # A program without a backward pass has shown what it does.
        later = None if counted is self._by_forward else self.later
        if self.later is not None and counted.steps in LOOKS and counted.has_just_risen:
            self.later.before_end()
        if later is not None and later.is_under_way:
            pass
        elif isinstance(self.goal, int):
            if counted.steps < self.goal:
                return
            self.why = "steps"
        elif later is not None and self._enough is not None and steady_counts:
            if counted.steps < self._enough:
                return
            self.why = "steps"
        elif later is not None and self._each_evaluation_leaves_as_much(counted, later):
            self.why, later = "steps", None
        elif counted.steady and steady_counts and counted.has_settled(after_a_look=later is not None and self.goal != "one-validation"):
            self.why = "steady"
            self._was_steady = True
        elif counted.gave_up():
            self.why = "steps"
            if counted.rises:
                later = None  # Growth is the answer; later code does not change it.
        else:
            return
        if later is not None and later.goes_on(self._memory.place(), counted.steps):
            return
        is_asked_for = isinstance(self.goal, int) or self._enough is not None
        if self.why == "steps" and not is_asked_for and not self.steady:
            self._recording.note(
                "not-steady",
                "memory was still changing after %d steps (%.0f s after the third); plimsoll ended the run there"
                % (counted.steps, counted.seconds_since_third_step()),
            )
        self._note_what_comes_later(counted.steps)
        # Behind the loops that the run has come to: a script may have several, one after another.
        self.after_the_loops = intervals.computes_after_the_loops() if not is_asked_for else None
        if self.before_stop is not None:
            self.before_stop()
        self._stopping.request()

    def _note_what_comes_later(self, steps: int) -> None:
        """What the text of the script says that the run does not come to."""
        if self._stores_at is not None and steps <= self._stores_at[0]:
            every, line = self._stores_at
            text = "the script stores something every %d steps (%s), and plimsoll ended the run after %d: what that keeps was not seen"
            self._recording.note("stores-later", text % (every, _shown(line), steps))
        raises = self.later.raises_at if self.later is not None else None
        if raises is not None:
            of = f" of {raises.turns:,}" if raises.turns is not None else ""
            text = "the script raises an error in turn {:,}{} (`{}`, {}), and plimsoll ended the run in turn {:,}"
            self._recording.note("raises-later", text.format(raises.turn, of, raises.name, _shown(raises.line), raises.now))
        loads_at = intervals.loads_after_the_loops()
        if loads_at is not None:
            text = "after its loops the script loads weights (%s), and plimsoll ended the run before: what that needs was not seen"
            self._recording.note("loads-later", text % _shown(loads_at))


def _shown(line: Line) -> str:
    return "%s:%d" % (os.path.basename(line["file"]), line["line"])
