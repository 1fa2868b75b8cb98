"""What comes after the first steps: the end of an epoch, its validation, its checkpoint.

Once memory is steady a run with the goal `validation` goes on, in three parts:

    epoch   DataLoaders of training have no more, so what a script does after an epoch comes at once; a trainer of a library
            is asked to validate
    on      if that was no evaluation, and the script speaks of one: it goes on as it is, for a validation every 100 steps. An
            interval that is a variable is short meanwhile (see `intervals`); else the run goes on to the evaluation, to the end of the
            innermost loop, or for so many allocations: not for a time, which depends on the machine. Where the script seems to count
            steps, or the loader is a stream that may be its only one, this part is the first
    end     epochs end early again, a few times: a script with few epochs comes to its end, with what it does there; or as often as
            the text says, where an evaluation comes every so many epochs, or something after the loops
    later   where the text says that a later turn of a loop does something else, it goes on to there: with epochs that end early, or step by step
    turns   where each turn of a loop around the steps makes an optimizer, it goes on to the next turn; where the first left something
            behind, to the third, which shows whether each leaves as much

Else the run ends with the first training step after an evaluation; where that left something behind, after a second one, which shows whether
each leaves as much. An evaluation is whatever calls models more often without a
backward pass than a usual step does: a teacher that is called in each step is none.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from plimsoll_agent.run import extent, intervals, trainers, turning
from plimsoll_agent.run.effort import Effort
from plimsoll_agent.run.hints import Hints

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plimsoll_agent.kinds import Line, Named
    from plimsoll_agent.run.epochs import Epochs
    from plimsoll_agent.run.intervals import Interval
    from plimsoll_agent.run.memory import Place
    from plimsoll_agent.run.modules import Modules
    from plimsoll_agent.run.phases import Phases
    from plimsoll_agent.run.recording import Recording
    from plimsoll_agent.run.stopping import Stopping
    from plimsoll_agent.run.turning import Turning

MORE_STEPS = 8
"""Steps, of as many epochs, in the last part."""

MOST_ALLOCATIONS_FOR_A_GUESS, MOST_ALLOCATIONS = 250_000, 500_000
"""For the second part: each costs time, also when the recording is written and read. The second where the script says how far it is."""

MOST_STEPS = 4000
"""The same, where a step allocates next to nothing."""

MOST_SECONDS = 120.0
"""The same for a script whose steps take long for other reasons than the phantom's."""

MOST_STEPS_OF_AN_UNKNOWN_LOOP = 200
"""To come to what stands after a loop whose number of turns nobody knows."""

STEPS_OF_AN_INTERVAL = 3
"""How long an interval is short: its branch comes after the first of them, unless it has another condition, too."""

SOON = 8
"""An interval with so many turns to come is left as it is: the script's own step may be another one then, too."""

AFTER_A_CUT = 2
"""Steps after an epoch was ended until it is over: a loader that fetches ahead learns of the end before its last batch."""

LONGEST_EVALUATION = 30.0, 120.0
"""Seconds from steady memory on until no loader has more, so that an evaluation of an hour ends, too: twice the time so far,
within these."""

LEFT_BEHIND = 1 << 20
"""Bytes that stay after an evaluation, and are a reason to see another."""

TURNS = 2
"""So many beginnings of a turn show what each leaves."""

FIRST_KNOWN = 2
"""The first step before which it is known what was called: what comes before the first of all is another thing."""

LAST_SECONDS = 10.0
"""After that, until the run is ended wherever it is."""

PAUSE = 0.25


class Later:
    """How far the run goes on, and what it came to."""

    def __init__(
        self, epochs: Epochs, recording: Recording, stopping: Stopping, phases: Phases, modules: Modules, has_company: Callable[[], bool]
    ) -> None:
        """`has_company()`: whether other processes train together with this one, and would go on for another time."""
        self._epochs, self._recording, self._stopping = epochs, recording, stopping
        self._phases, self._modules, self._has_company = phases, modules, has_company
        self._has_stepped = False
        self._intervals: list[tuple[int, ...]] = []
        self._usual: tuple[int, ...] | None = None
        self._part: str | None = None
        self._effort, self._since_step = Effort(), Effort()
        self._allocations = self._most_allocations = self._most_steps = 0
        self._most_short = MORE_STEPS
        self._intervals_ahead: list[Interval] = []
        self._shortened: list[Interval] = []
        self._steps_in_part = self._steps_after_cut = 0
        self._lives_before = 0
        self.steps_in_an_epoch: int | None = None
        """Turns of the loop that the steps stand in, if another loop is around it."""
        self._turnings: list[Turning] | None = None
        """What later turns do that was not seen yet; None as long as nobody looked."""
        self.raises_at: Turning | None = None
        """The first later turn in which the script raises an error."""
        self._last_before_turnings = 0
        self._turning_due: int | None = None
        """The first step in which one of them may have come; None where none is near."""
        self.anew: Named | None = None
        """A loop of which each turn makes an optimizer: a fold, a rate to try. See `extent`."""
        self.turned_at: list[int] = []
        """Steps that were done when its second turn began, and its third."""
        self._ends_of_turns: dict[int, int] = {}
        self._last_step = 0
        """The one with which something of what comes after the loops is seen,"""
        self._after_loops: Line | None = None
        """in this line."""
        self._left_by_a_turn: int | None = None
        self._lived_before_a_turn = 0
        self._evaluated_at: list[int] = []
        self._steps = self._mode_changes = self._mode_changes_before = 0
        self.evaluated = self._just_evaluated = self._was_ended = self._asked = self._is_spoken_of = False
        self._asks_last = self._is_told_to_end = False
        self._is_by_steps = self._was_brought_forward = False

        self.before_cut: Callable[[list[Any]], object] = lambda iterators: None
        """Called once memory is steady, with the iterators of the loaders that feed training."""
        self.before_end: Callable[[], object] = lambda: None
        """Called where the script may come to its end soon: loops have no more batches, and functions return."""

    def install(self) -> None:
        """Takes its places in PyTorch."""
        self._epochs.install()
        trainers.have_whole_epochs(lambda: self._epochs.cut_training)
        self._modules.watch_modes(self._mode_changed)

    def _mode_changed(self) -> None:
        self._mode_changes += 1

    def _calls(self) -> tuple[int, ...]:
        """How often models were called since the last step otherwise than for a training step."""
        # What torch.compile made is called past us; that a model goes into evaluation mode is seen.
        changes = self._mode_changes - self._mode_changes_before if self._modules.has_stepped_aside else 0
        return (*self._phases.calls_beside_training(), changes)

    def a_turn_begins(self, steps: int, lived: int) -> None:
        """So many steps are done, after the last of which so many bytes lived, and the line that made the optimizer has made another one."""
        if self.anew is not None and len(self.turned_at) < TURNS and steps not in self.turned_at:
            self.turned_at.append(steps)
            self._lived_before_a_turn = lived

    @property
    def a_turn_left_something(self) -> bool:
        """Whether more lives in the last turn that was seen than in the one before it."""
        return self._left_by_a_turn is not None and LEFT_BEHIND <= self._left_by_a_turn

    @property
    def is_under_way(self) -> bool:
        """Whether memory was steady: what comes now is more than the training steps."""
        return self._part is not None

    def step_ended(self) -> None:
        """A training step is over."""
        self._epochs.step_ended()
        self._since_step = Effort()
        made, self._mode_changes_before = self._calls(), self._mode_changes
        self._phases.forget_calls()
        if not self._has_stepped:
            self._has_stepped = True
            return  # What comes before the first step: a look whether the validation works at all.
        if self._usual is None:
            self._intervals.append(made)
        elif _is_more(made, self._usual):
            self.evaluated = self._just_evaluated = True

    def saw_each_leave_as_much(self, rises: Sequence[int], left: Sequence[int]) -> bool:
        """Whether memory rose after the first two of these steps because of an evaluation before each, which left so many bytes. Then epochs are
        so short that memory is never steady, and no more have to be seen."""
        first, second = rises if len(rises) == 2 else (0, 0)
        if self._part is not None or first < FIRST_KNOWN or min(left) < LEFT_BEHIND:
            return False
        self._usual = tuple(min(calls) for calls in zip(*self._intervals))
        has_evaluated = [_is_more(calls, self._usual) for calls in self._intervals]
        seen = has_evaluated[first - FIRST_KNOWN], has_evaluated[second - FIRST_KNOWN]
        if not all(seen) or any(has_evaluated[first - FIRST_KNOWN + 1 : second - FIRST_KNOWN]):
            self._usual = None
            return False
        self._part, self._steps, self.evaluated = "end", second, True
        self._evaluated_at = [first, second]
        self._is_spoken_of = True
        return True

    def goes_on(self, place: Place, steps: int) -> bool:
        """Memory is steady, or will not be, after so many steps. Whether the run goes on all the same."""
        epochs = self._epochs
        if self._part is None:
            self._begin(place, steps)
        else:
            self._steps_in_part += 1
            self._steps_after_cut += epochs.cut_training
            # What has come and was no evaluation is not waited for.
            self._intervals_ahead = [it for it in self._intervals_ahead if it.has_conditions or not it.has_passed()]
        lives, before = sum(place.allocated), self._lives_before
        self._lives_before = lives
        if self._just_evaluated:
            self._evaluated_at = [*self._evaluated_at, steps][:2]
            self._was_brought_forward = self._was_brought_forward or bool(self._shortened)
            if self._asked or 2 <= len(self._evaluated_at) or lives < before + LEFT_BEHIND:
                self._restore(self._shortened)
                self._just_evaluated = False
                return self._goes_further(place, steps)
            self._wait_for_another()
        is_over = self._steps_after_cut == AFTER_A_CUT or self._steps_in_part == MORE_STEPS
        if self._part == "epoch" and is_over:
            self._part = "on"
            if self._steps_after_cut == AFTER_A_CUT:
                self._came(are_of_epochs=True)
        has_enough = self.evaluated and not self._evaluated_at
        if self._part == "on" and (has_enough or not self._has_time(place)):
            # An interval of epochs stays short: these end early now.
            self._restore([it for it in self._shortened if not it.is_of_epochs])
            self.before_end()
            epochs.end_early = True
            self._part, self._steps_in_part = "end", 0
        if self._part != "end" or self._steps_in_part < self._most_short and epochs.feed_training:
            return True
        return self._goes_further(place, steps)

    def _goes_further(self, place: Place, steps: int) -> bool:
        goes = self._goes_to_the_end(place, steps) or self._goes_to_turnings(place, steps)
        return goes or self._asks_at_last() or self._goes_to_a_turn(place, steps)

    def _asks_at_last(self) -> bool:
        """Asks a trainer that ends once it is asked to validate, after later turns were seen."""
        if not self._asks_last:
            return False
        self._asks_last = False
        self._asked = self._is_told_to_end = bool(trainers.validate_now())
        self._part, self._steps_in_part = "epoch", 0
        return self._asked

    def _goes_to_turnings(self, place: Place, steps: int) -> bool:
        """Whether the run goes on to what a later turn of a loop does that none so far did."""
        if self._is_told_to_end or self._has_company():
            return False
        made = sum(place.allocs) - self._allocations
        rest = MOST_ALLOCATIONS_FOR_A_GUESS - made
        # The text is read again no sooner than the first of them can have come.
        if self._turnings is None or self._turning_due is not None and self._turning_due <= steps:
            before, found = self._turnings, turning.ahead(bool(self._epochs.feed_training)) or []
            ahead = [it for it in found if not it.raises]
            self.raises_at = min((it for it in found if it.raises), key=lambda it: it.to_come, default=None)
            each = made // (steps - self._steps) if self._steps < steps else sum(place.allocs) // max(steps, 1)
            most = min(rest // max(each, 1), MOST_STEPS)
            near = [it for it in ahead if it.steps_a_turn is not None and it.to_come * (it.steps_a_turn or AFTER_A_CUT) <= most]
            self._turning_due = min((steps + it.to_come * (it.steps_a_turn or 1) for it in near), default=None)
            # What came is seen for some steps: an optimizer makes its states in the first of them.
            seen_for = STEPS_OF_AN_INTERVAL if before else 0
            needed = [it.to_come * (it.steps_a_turn or AFTER_A_CUT) for it in near]
            self._last_before_turnings = steps + max([seen_for, *needed])
            self._turnings = ahead
            if any(it.steps_a_turn == 0 for it in near):
                self._epochs.end_early = True
        if self._last_before_turnings <= steps or rest <= 0:
            return False
        self._part = "end"
        return True

    def not_seen(self, stage: Named | None) -> Named | None:
        """What a later turn of a loop does, or may leave, that was not seen. `stage`: by a look at the first steps."""
        ahead = min(self._turnings or [], key=lambda it: it.to_come, default=None) if self._stopping.requested or self._is_told_to_end else None
        if ahead is None:
            return self.turn() or (stage if self._turnings is None else None)
        return {"line": ahead.line, "name": ahead.name, "turn": ahead.now, "turns": ahead.turns, "from": None if ahead.is_stage else ahead.turn}

    def _goes_to_the_end(self, place: Place, steps: int) -> bool:
        """What the script computes after its loops comes after epochs of one step, or after the rest of the steps. Whether these are so few that the
        run goes on for that; and for what comes after the next loops."""
        if self._asked or self._has_company():
            return False
        if self._last_step <= steps:
            line = intervals.computes_after_the_loops()
            if line is None or line == self._after_loops:
                return False
            self._after_loops, has_loader = line, self._epochs.feed_training
            ahead, done = extent.of_this_step(steps)
            made = sum(place.allocs) - self._allocations
            each = max(made // max(steps - self._steps, 1), 1)
            rest = ahead["epochs"] if has_loader else ahead["steps"] - (done or 0) if ahead["steps"] is not None else None
            most = (MOST_ALLOCATIONS_FOR_A_GUESS - made) // each
            if rest is None and not has_loader:
                rest = most = min(most, MOST_STEPS_OF_AN_UNKNOWN_LOOP)
            if rest is None or most < rest:
                return False
            self._last_step = steps + rest + STEPS_OF_AN_INTERVAL
            self._part = "end"
        # Until then the epochs of each loop are short.
        self._epochs.end_early = self._epochs.end_early or self._epochs.feed_training
        return True

    def _goes_to_a_turn(self, place: Place, steps: int) -> bool:
        """What the network and the optimizer of one turn leave, the next turn has beside its own. Whether the run goes on to see that."""
        if self.anew is None or self._asked or self._has_company():
            return False
        seen = len(self.turned_at)
        if seen and steps < self.turned_at[-1] + STEPS_OF_AN_INTERVAL:
            return True
        if seen:
            self._left_by_a_turn = max(place.lives - self._lived_before_a_turn, 0)
        if seen == TURNS or seen and not self.a_turn_left_something:
            return False
        self._part = "end"
        if seen not in self._ends_of_turns:
            self._ends_of_turns[seen] = self._end_of_turn(sum(place.allocs), steps)
        return steps < self._ends_of_turns[seen]

    def _end_of_turn(self, allocations: int, steps: int) -> int:
        """The step with which some of the next turn is seen; 0 if that is too far, or nobody knows it."""
        inside = self.anew["inside"] if self.anew is not None else None
        if inside is None:
            return 0
        began = self.turned_at[-1] if self.turned_at else 0
        if self._epochs.feed_training:
            self._epochs.end_early = True  # Each epoch is a step then.
            began = steps
        end = began + inside + STEPS_OF_AN_INTERVAL
        return end if (end - steps) * allocations // max(steps, 1) <= MOST_ALLOCATIONS_FOR_A_GUESS else 0

    def turn(self) -> Named | None:
        """The loop whose turns may add up, and in which of them the run was; None where it was seen whether they do."""
        is_clean = self._left_by_a_turn is not None and not self.a_turn_left_something
        if self.anew is None or len(self.turned_at) == TURNS or is_clean:
            return None
        named = {name: self.anew[name] for name in ("line", "name", "turns")}
        return {**named, "turn": self.anew["turn"] + len(self.turned_at), "left_bytes": self._left_by_a_turn or 0}

    def _begin(self, place: Place, steps: int) -> None:
        before = self._intervals[-2:]
        self._usual = tuple(max(it) for it in zip(*before)) if before else (0,) * 4
        # The first steps may have had one: `if step % 100 == 0`.
        self.evaluated = any(_is_more(it, self._usual) for it in self._intervals)
        hints = Hints()
        self._is_spoken_of = hints.later or hints.by_steps
        ends_when_asked = trainers.end_when_asked()
        self._asks_last = ends_when_asked and self._goes_to_turnings(place, steps)
        validates = None if self._asks_last else trainers.validate_now()
        self._asked = bool(validates)
        self._is_told_to_end = self._asked and ends_when_asked
        self._intervals_ahead = intervals.of_this_step(self._epochs.feed_training) if validates is None else []
        self._is_spoken_of = self._is_spoken_of or bool(self._intervals_ahead)
        if self._intervals_ahead:
            counts_steps = not all(it.is_of_epochs for it in self._intervals_ahead)
        else:
            counts_steps = hints.by_steps or hints.later and self._epochs.are_streams
        if self._asks_last:
            self._part = "end"
        elif validates is None and (counts_steps or not self._epochs.feed_training):
            self._part, self._is_by_steps = "on", counts_steps
        else:
            self._part = "epoch"
            if not validates:
                self._epochs.end_this_one()
        self.before_cut(self._epochs.feeding())
        self.before_end()
        is_worth_it = self._is_spoken_of and validates is None and not self._asks_last
        self._allocations, self._steps, self._effort = sum(place.allocs), steps, Effort()
        if is_worth_it and not self._has_company():
            self._look_ahead(sum(place.allocs) / max(steps, 1), steps)
        least, most = LONGEST_EVALUATION
        longest = min(max(2 * self._recording.seconds(), least), most)
        threading.Thread(target=self._watch, args=[longest], name="plimsoll-later", daemon=True).start()

    def _look_ahead(self, allocations: float, steps: int) -> None:
        """How far the second part goes, where a step makes so many allocations."""
        ahead = [it.to_come for it in self._intervals_ahead if it.to_come is not None]
        if self.steps_in_an_epoch is not None and steps < self.steps_in_an_epoch:
            ahead.append(self.steps_in_an_epoch - steps)
        near = [it for it in ahead if (it + STEPS_OF_AN_INTERVAL) * allocations <= MOST_ALLOCATIONS]
        self._most_allocations = MOST_ALLOCATIONS if near else MOST_ALLOCATIONS_FOR_A_GUESS
        self._most_steps = max([MOST_STEPS, *(it + STEPS_OF_AN_INTERVAL for it in near)])
        far = [it for it in self._intervals_ahead if it.to_come is None or SOON < it.to_come]
        self._shortened = [it for it in far if it.shorten()]
        epochs = [it.epochs_to_come for it in self._intervals_ahead]
        if self._epochs.feed_training and epochs and not self._shortened and None not in epochs:
            # Epochs that end early come there soon.
            short = max(it for it in epochs if it is not None) * AFTER_A_CUT + MORE_STEPS
            if short * allocations <= MOST_ALLOCATIONS:
                self._most_steps, self._most_short = 0, short

    def _came(self, are_of_epochs: bool) -> None:
        """Branches whose interval was 1 for long enough: what they have is no evaluation, unless they wait for something else, too."""
        came = [it for it in self._shortened if it.is_of_epochs == are_of_epochs]
        self._intervals_ahead = [it for it in self._intervals_ahead if it.has_conditions or it not in came]
        self._restore(came)

    def _restore(self, intervals: list[Interval]) -> None:
        for it in intervals:
            it.restore()
        self._shortened = [it for it in self._shortened if it not in intervals]

    def _wait_for_another(self) -> None:
        self._just_evaluated = False
        self._steps_in_part = self._steps_after_cut = 0
        self._effort, self._most_steps = Effort(), max(self._most_steps, MOST_STEPS)
        self._most_allocations = max(self._most_allocations, MOST_ALLOCATIONS_FOR_A_GUESS)
        self._part = "epoch" if self._epochs.feed_training and not self._is_by_steps else "on"
        if self._part == "epoch":
            self._epochs.end_early = False
            self._epochs.end_this_one()

    def _has_time(self, place: Place) -> bool:
        if STEPS_OF_AN_INTERVAL <= self._steps_in_part:
            self._came(are_of_epochs=False)
        is_late = self._most_steps <= self._steps_in_part or MOST_SECONDS <= self._effort.seconds()
        return not is_late and sum(place.allocs) - self._allocations < self._most_allocations

    def _watch(self, longest: float) -> None:
        began = Effort()
        # What takes long is what no step ends in.
        while self._since_step.seconds() < longest and began.seconds() < longest + MOST_SECONDS:
            time.sleep(PAUSE)
        self._epochs.end_what_runs = True
        last = Effort()
        while last.seconds() < LAST_SECONDS:
            time.sleep(PAUSE)
        self._was_ended = not self._stopping.requested
        self._stopping.request()

    def told(self) -> Named | None:
        """For the end of the recording; None if the run did not go on."""
        self._restore(self._shortened)
        if self._part is None or self._usual is None:
            return None
        if self._has_stepped and _is_more(self._calls(), self._usual):
            self.evaluated = True  # After the last step.
        return {
            "steps_before": self._steps,
            "evaluation": self.evaluated,
            "evaluated_at": self._evaluated_at,
            "spoken_of": self._is_spoken_of,
            "awaited": self._awaited(),
            "brought_forward": self._was_brought_forward,
            "evaluation_cut": self._epochs.cut_evaluation or self._was_ended,
            "cut_loop": self._epochs.cut_loop,
            "epochs_cut": self._epochs.cut_training or self._asked,
        }

    def _awaited(self) -> Line | None:
        """The line with the condition of an evaluation that the script would have come to, and the run did not."""
        ahead = self._intervals_ahead
        if not self._stopping.requested:
            # The script came to its end by itself: only epochs may have been shorter than they are, and none was left out.
            ahead = [it for it in ahead if self._epochs.cut_training and not it.is_of_epochs]
        if self.evaluated or self._asked or not ahead:
            return None
        return ahead[0].line

    def batches(self) -> tuple[int, int | None]:
        """How many training took from data loaders, and how many these give in an epoch, if that is known."""
        return self._epochs.batches, self._epochs.in_an_epoch


def _is_more(calls: Sequence[int], usual: Sequence[int]) -> bool:
    return any(now > before for now, before in zip(calls, usual))
