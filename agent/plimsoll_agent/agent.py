"""Wires the agent together, once torch has been imported.

Everything that reaches into PyTorch is in the `install` of the module that owns it, and goes through `patch`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from plimsoll_agent import outside, remedies, settings, torch_builds
from plimsoll_agent.engines import places
from plimsoll_agent.engines.asked import Program, asked_by
from plimsoll_agent.inputs.padding import Padding
from plimsoll_agent.inputs.samples import Samples
from plimsoll_agent.ranks import imagined as ranks
from plimsoll_agent.ranks import named as named_ranks
from plimsoll_agent.ranks.first_gpu import FirstGpu
from plimsoll_agent.remedies.support.hooks import Hooks
from plimsoll_agent.run import ending, first_step, guard, preparing, process, saving, uncompiled
from plimsoll_agent.run.checkpoints import Checkpoints
from plimsoll_agent.run.compiled import Compiled
from plimsoll_agent.run.epochs import Epochs
from plimsoll_agent.run.failures import Failures
from plimsoll_agent.run.graphs import Graphs
from plimsoll_agent.run.guard import failed, guarded
from plimsoll_agent.run.keepers import Keepers
from plimsoll_agent.run.later import Later
from plimsoll_agent.run.memory import Memory
from plimsoll_agent.run.meter import Meter
from plimsoll_agent.run.modules import Modules
from plimsoll_agent.run.oom import OutOfMemory
from plimsoll_agent.run.owners import Owners
from plimsoll_agent.run.phases import Phases
from plimsoll_agent.run.recording import Recording
from plimsoll_agent.run.sampling import Sampling
from plimsoll_agent.run.stopping import Stopping
from plimsoll_agent.run.stopwatch import Stopwatch
from plimsoll_agent.run.sudden_end import SuddenEnd
from plimsoll_agent.run.tensors import Tensors
from plimsoll_agent.run.training_calls import TrainingCalls
from plimsoll_agent.run.training_steps import Steps, goal_of
from plimsoll_agent.run.unfolded import Unfolded
from plimsoll_agent.run.weights import Weights
from plimsoll_agent.settings import Settings
from plimsoll_agent.trials import autotune, batches
from plimsoll_agent.values import descent, detectors, drafts, interpreted, phantom, solvers
from plimsoll_agent.values.asked_size import AskedSize
from plimsoll_agent.values.ghosts import Ghosts
from plimsoll_agent.values.phantom import Phantom
from plimsoll_agent.watch.watching import Watching

if TYPE_CHECKING:
    from collections.abc import Callable

    from plimsoll_agent.kinds import Arguments, Named, Torch

_agent: Agent | None = None


def install(torch: Torch) -> None:
    """Starts the agent in this process. Called by the import of torch, at its end; a nursery waits, and
    calls it in each child."""
    global _agent
    session = settings.session()
    if _agent is None and session:
        _agent = Agent(torch, session, settings.read())
        _agent.install()


def current() -> Agent | None:
    """The agent of this process; None if there is none."""
    return _agent


def begin_late(torch: Torch, session: str, events: Any, asleep: bool = False) -> Agent:
    """Starts the agent in a program that is under way, and asked for it itself (`plimsoll.record`, `plimsoll.watch`).
    With `asleep` nothing is recorded yet."""
    global _agent
    asked = replace(settings.read(), is_real=True, stop="until-exit", most_events=int(events))
    _agent = Agent(torch, session, replace(asked, stacks="asleep") if asleep else asked)
    _agent.install()
    _agent.calls.wrap_optimizers_in_use()
    return _agent


class Agent:
    """The agent of one process: its parts, and what is done with them when the process starts, goes on, forks and ends."""

    def __init__(self, torch: Torch, session: str, asked: Settings) -> None:
        self._torch, self._asked = torch, asked
        self.live = True
        self._recording = recording = Recording(session)
        guard.report_to(recording.note)
        recording.seconds_imports = 0.0
        self._memory = memory = Memory(torch, recording, asked)
        self._phases = phases = Phases(memory, recording)
        self._stopping = stopping = Stopping(self._finish, recording, asked.is_real)
        self._steps = steps = Steps(memory, phases, recording, stopping, goal_of(asked.stop, recording.note), asked.hopeless)
        owners = Owners()
        self._tensors = tensors = Tensors(torch, memory, recording, owners, steps.optimizers)
        self._weights = Weights(torch, recording, owners)
        tensors.appeared = self._weights.look
        self._keepers = keepers = Keepers(torch, memory, recording, tensors)
        self._graphs = graphs = Graphs(torch, memory, recording, owners, steps.optimizers, lambda: steps.done)
        self._oom = oom = OutOfMemory(torch, memory, recording, phases, tensors)
        self._phantom = Phantom(torch, recording)
        self._first_gpu = FirstGpu(torch, recording)
        self._ghosts = Ghosts(torch, recording, steps.optimizers, asked.ghost_weights)
        self._saving = saving.Saving(phases)
        self._ending = ending.Ending(torch, recording, memory, steps, tensors, keepers, graphs, oom, self._phantom, stopping, self._saving)
        self._modules = Modules(torch, owners, phases, steps, stopping, tensors, oom, self._is_live, detectors.Shares, recording.note)
        self._modules.around_call = self._ghosts.leaves_for
        self._sudden_end = SuddenEnd(self._finish_by, lambda: self._ending.is_finishing)
        self._sampling = Sampling(memory, phases, self._modules, recording, asked.stacks if asked.is_real else "")
        self.calls = TrainingCalls(torch, phases, steps, stopping, oom, self._is_live)
        self.calls.around_step, self.calls.before_backward = descent.stepped, self._backward_begins
        self._compiled = Compiled(torch, self._modules, recording, self._is_live)
        self.failures = Failures(memory, recording, phases, oom, self._ending, self._sudden_end, stopping, asked.folds, self._opens)
        self.watching = Watching(torch, recording, memory, phases, steps, self._sampling, self._modules, self._ending.last_steps, asked.is_real)
        self._meter = Meter(torch, recording) if asked.meter else None
        self._stopwatch = Stopwatch(torch, recording) if asked.measure else None
        if self._meter is not None:
            self._compiled.after = self._meter.meets_compiled
        if steps.goal in ("validation", "one-validation"):
            has_company = functools.partial(ranks.has_company, torch)
            epochs, padding = Epochs(lambda: memory.place().lives), Padding(torch, recording)
            epochs.gave, tensors.given = padding.taken, padding.given
            steps.later = Later(epochs, recording, stopping, phases, self._modules, has_company)
        # Who searches runs a script many times: one look is enough.
        self._samples = Samples(torch, recording) if asked.worst_sample or steps.goal == "validation" and not asked.is_real else None
        if self._samples is not None and steps.later is not None:
            steps.later.before_cut, steps.later.before_end = self._samples.look, keepers.of_those_that_may_return
        keepers.memory_rises = steps.rise
        steps.after_step, steps.before_stop = self._after_step, self._before_stop
        self._before_end: list[Callable[[], object]] = []
        self.watching.is_asked_for(asked.watch, asked.label, asked.expected)

    def install(self) -> None:
        """Takes its places in PyTorch. One that is not where we know it costs only what it is for."""
        torch, recording, asked = self._torch, self._recording, self._asked
        if not process.is_a_worker():
            ending.write_begin(recording, torch.__version__)
            outside.report_to(recording.note)
        # Before everything else, so that what the plan does is inside what is recorded. Not guarded: a
        # plan that cannot be applied must not look like one that was.
        self._change_the_program()
        atexit.register(self._ends)
        os.register_at_fork(after_in_child=self._forked)
        # Not `start()` itself: that initialises CUDA, which costs memory and time in programs that
        # never use it, and a process that has initialised CUDA cannot fork workers that do.
        torch.cuda._lazy_call(self._cuda_starts)
        is_imagined, later = not asked.is_real, self._steps.later
        for part in (
            self._sudden_end.install if is_imagined else None,
            self.failures.watch if is_imagined else None,
            self._memory.take_over,
            self._modules.install,
            self._sampling.install,
            self.calls.wrap_optimizers,
            self.calls.wrap_zero_grad,
            self.calls.wrap_backward,
            self._compiled.install,
            functools.partial(autotune.watch, recording),
            self.failures.watch_spawned,
            functools.partial(ranks.install, torch, recording, self._phantom) if is_imagined else None,
            self._first_gpu.install if is_imagined else None,
            self._ghosts.install,
            later.install if later is not None else None,
            functools.partial(self._samples.install, asked.worst_sample) if self._samples is not None else None,
            functools.partial(preparing.install, self._phases) if is_imagined else None,
            self._saving.install,
            functools.partial(self._saving.watch, torch) if is_imagined else None,
            Checkpoints(torch, recording.note).install if is_imagined else None,
            Unfolded(torch, recording).install if is_imagined else None,
            functools.partial(batches.install, torch, asked.own_batches),
            AskedSize(torch, recording).install if is_imagined else None,
            functools.partial(places.install, torch, recording, asked.stop, asked_by(asked.engine), self._engines_program()) if is_imagined else None,
            functools.partial(uncompiled.install, recording) if is_imagined else None,
            functools.partial(interpreted.install, torch) if is_imagined else None,
            drafts.install if is_imagined else None,
            functools.partial(solvers.install, torch, recording) if is_imagined else None,
        ):
            try:
                if part is not None:
                    part()
            except Exception as error:
                failed("agent.install, %s" % getattr(part, "__qualname__", part), error)
        recording.seconds_imports = process.seconds_since_start() or recording.seconds()

    def _engines_program(self) -> Program:
        return Program(self._steps, self._stopping, self.failures.of_a_worker, interpreted.paused)

    def _change_the_program(self) -> None:
        """What a plan changes; longer batches, and the look for places in the script, take hold in the same way."""
        torch, recording, asked = self._torch, self._recording, self._asked
        hooks = Hooks(torch, recording)
        # Few runs ask for any of these, so few import them. What survives is outermost.
        if asked.survive:
            from plimsoll_agent.survive import survival

            survives = survival.apply(torch, hooks, recording, self._oom, lambda: self._steps.done)
            self.calls.step_failed = survives.optimizer_failed
        if asked.batch_length == "text":
            from plimsoll_agent.inputs import unpadded

            unpadded.apply(torch, recording)
        elif asked.batch_length:
            from plimsoll_agent.inputs import worst_sequence

            worst_sequence.apply(torch, asked.batch_length, hooks, recording)
        if asked.image_size:
            from plimsoll_agent.inputs import worst_size

            self._before_end.append(worst_size.apply(torch, asked.image_size, recording))
        if asked.half:
            from plimsoll_agent.inputs import half

            half.apply(torch, asked.half, hooks)
        if asked.worst_batches:
            from plimsoll_agent.inputs import largest_draws, worst_batches

            largest_draws.apply(torch, recording)
            worst_batches.apply(torch, recording, asked.stop, lambda: self._steps.done, lambda: self._phases.n_backwards)
        if asked.unhurried:
            from plimsoll_agent.trials import unhurried

            unhurried.install(torch)
        if asked.sites:
            from plimsoll_agent.survey import sites

            self._before_end.append(sites.apply(torch, hooks, recording))
        if asked.plan:
            remedies.apply(torch, asked.plan, hooks)
        hooks.install()

    def saw(self, error: BaseException) -> None:
        """An exception leaves what was recorded; None when that is over."""
        self._oom.passed_by(error)
        self._ending.error = error

    def record_all(self) -> None:
        """From now on everything is recorded, if it was not."""
        self._sampling.wake()

    @property
    def session(self) -> str:
        """The folder in which it leaves what it sees."""
        return self._recording.session

    def keep(self, folder: str) -> Any:
        """Leaves a recording of everything so far in `folder`, and goes on. False if the device was not used."""
        return self._ending.so_far(folder)

    def _is_live(self) -> bool:
        return self.live

    @guarded  # Raised here it would become the user's "CUDA call failed lazily".
    def _cuda_starts(self) -> None:
        """Called by PyTorch while it initialises CUDA in this process."""
        torch, recording = self._torch, self._recording
        self._opens()  # A worker that uses the GPU after all: a rank, then, and worth a recording of its own.
        self.live = True
        recording.write("architectures", values=torch_builds.architectures(torch))
        remark = torch_builds.remark(torch_builds.installed(torch.__file__))
        if remark and phantom.is_here():
            recording.note("torch-version", remark)
        self._memory.start()
        self._sampling.cuda_started()
        self._memory.limit(self._asked.most_reserved)
        self._oom.observe()
        self._phantom.watch_reads()
        self.watching.cuda_started()
        self._memory.note_another_allocator()

    def _opens(self) -> None:
        """A child of multiprocessing has something to record, which leaves nothing until then."""
        if self._recording.is_open:
            return
        ending.write_begin(self._recording, self._torch.__version__, child=True)
        outside.report_to(self._recording.note)
        process.at_its_end(self._ends)
        if not self._asked.is_real:
            self._sudden_end.ended_by_another()

    def _after_step(self, step: int) -> None:
        """Names the tensors after the first steps, then less and less often."""
        self._sampling.step_ended(step)  # First: naming is part of no step that it measures.
        self._oom.go_on()
        self._phantom.step()
        if self._meter is not None:
            self._meter.step_ended(step)
        if self._stopwatch is not None:
            self._stopwatch.step_ended(step)
        if step == 1 and self._memory.started:
            first_step.write(self._torch, self._memory, self._recording, self._tensors.first_inputs)
            self._weights.stepped()
        if not self._asked.is_real:
            ranks.wait_for_watchdog(step)
            self._first_gpu.step_ended()
            if step == 1 and ranks.is_first():
                named_ranks.write(recording=self._recording, world=settings.number(ranks.WORLD) or 1)
        if (step <= 4 or step & (step - 1) == 0) and not self._memory.asleep:
            self._tensors.all()

    def _forked(self) -> None:
        """In the child: silent, unless it initialises CUDA itself."""
        try:
            self._ending.forked()
            self._recording.forked()
            self._phases.forked()
            self._steps.forked()
            self._sampling.forked()
            self._stopping.forked()
            self.watching.forked()
            if self._stopwatch is not None:
                self._stopwatch = Stopwatch(self._torch, self._recording)
            self._oom.forget()
            self._phantom.forget_reads()
            # A child whose parent had CUDA cannot use it; others may, and `_cuda_starts` wakes them up.
            self.live = False
            if self._memory.started:
                self._memory.started = False
            else:
                self._memory.forked()
        except Exception:
            self.live = False

    @guarded
    def _backward_begins(self, args: Arguments, kwargs: Named, is_grad: bool) -> None:
        self._ghosts.training_begins()
        self._modules.backward_begins()
        self._graphs.backward_begins(args, kwargs, is_grad)

    def _before_stop(self) -> None:
        self._tensors.all()
        self._keepers.of_the_running()

    def _finish_by(self, signal: int | None) -> None:
        """The process ends now, by this signal of its own or, with None, by `os._exit`."""
        self._ending.signal = signal
        self._finish()

    def _ends(self) -> None:
        with contextlib.nullcontext() if self._asked.is_real else self._sudden_end.undisturbed():
            self._finish()

    def _finish(self) -> None:
        self.live = False
        for it in (*self._before_end, self._phantom.finish):
            try:
                it()
            except Exception as error:  # The last words are said all the same.
                failed("agent.finish", error)
        if self._stopwatch is not None and self._recording.is_open:
            self._stopwatch.write()
        self._ending.finish()
        self.watching.finish()
