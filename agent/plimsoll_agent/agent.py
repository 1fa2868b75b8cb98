"""Wires the agent together, once torch has been imported.

Everything that reaches into PyTorch is here or in the `install` of the module that owns it, and goes through `patch`, the one door.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from plimsoll_agent import outside, patch, remedies, torch_builds
from plimsoll_agent.ranks import imagined as ranks
from plimsoll_agent.remedies.support.hooks import Hooks
from plimsoll_agent.run import ending, first_step, frames, guard, uncaught
from plimsoll_agent.run.epochs import Epochs
from plimsoll_agent.run.guard import failed, guarded
from plimsoll_agent.run.later import Later
from plimsoll_agent.run.memory import Memory
from plimsoll_agent.run.meter import Meter
from plimsoll_agent.run.modules import Modules
from plimsoll_agent.run.oom import OutOfMemory
from plimsoll_agent.run.owners import Owners
from plimsoll_agent.run.phases import BACKWARD, OPTIMIZER, ZERO_GRAD, Phases
from plimsoll_agent.run.recording import Recording
from plimsoll_agent.run.sampling import Sampling
from plimsoll_agent.run.stopping import Stopping
from plimsoll_agent.run.stopwatch import Stopwatch
from plimsoll_agent.run.sudden_end import SuddenEnd
from plimsoll_agent.run.tensors import Tensors
from plimsoll_agent.run.training_steps import Steps
from plimsoll_agent.settings import Settings, read
from plimsoll_agent.trials import autotune, batches
from plimsoll_agent.values import descent, detectors, phantom
from plimsoll_agent.values.asked_size import AskedSize
from plimsoll_agent.values.ghosts import Ghosts
from plimsoll_agent.values.phantom import Phantom

if TYPE_CHECKING:
    from collections.abc import Callable

    from plimsoll_agent.kinds import Function, Torch
    from plimsoll_agent.survive.survival import Survival
    from plimsoll_agent.watch.watcher import Watcher

_agent: Agent | None = None


def install(torch: Torch) -> None:
    """Starts the agent in this process. Called by the import of torch, at its end; a nursery waits, and
    calls it in each child."""
    global _agent
    session = os.environ.get("PLIMSOLL_SESSION")
    if _agent is None and session:
        _agent = Agent(torch, session, read())
        _agent.install()


def current() -> Agent | None:
    """The agent of this process; None if there is none."""
    return _agent


def begin_late(torch: Torch, session: str, events: Any, asleep: bool = False) -> Agent:
    """Starts the agent in a program that is under way, and asked for it itself (`plimsoll.record`, `plimsoll.watch`).
    With `asleep` nothing is recorded yet."""
    global _agent
    asked = replace(read(), is_real=True, stop="until-exit", most_events=int(events))
    _agent = Agent(torch, session, replace(asked, stacks="asleep") if asleep else asked)
    _agent.install()
    _agent.wrap_optimizers_in_use()
    return _agent


class Agent:
    """The agent of one process."""

    def __init__(self, torch: Torch, session: str, asked: Settings) -> None:
        self._torch, self._asked = torch, asked
        self.live = True
        self._recording = recording = Recording(session)
        guard.report_to(recording.note)
        recording.seconds_imports = 0.0
        self._memory = memory = Memory(torch, recording.note, asked.most_events)
        self._owners = Owners()
        self._phases = phases = Phases(memory, recording)
        self._is_real = asked.is_real
        self._stopping = Stopping(self._finish, recording, self._is_real)
        self._steps = steps = Steps(memory, phases, recording, self._stopping, _goal(asked.stop, recording), asked.hopeless)
        self._tensors = Tensors(torch, memory, recording, self._owners, steps.optimizers)
        self._oom = OutOfMemory(torch, memory, recording, phases, self._tensors)
        self._phantom = Phantom(torch, recording)
        self._asked_size = AskedSize(torch, recording)
        self._ghosts = Ghosts(torch, recording, steps.optimizers, asked.ghost_weights)
        self._ending = ending.Ending(
            torch, recording, memory, steps, self._tensors, self._oom, self._phantom, self._stopping
        )
        self._modules = Modules(
            torch,
            self._owners,
            phases,
            steps,
            self._stopping,
            self._tensors,
            self._oom,
            lambda: self.live,
            detectors.Kept,
        )
        self._modules.around_call = self._ghosts.leaves_for
        self._sudden_end = SuddenEnd(self._finish_by, lambda: self._ending.is_finishing)
        self._sampling = Sampling(memory, phases, self._modules, recording, asked.stacks if asked.is_real else "")
        steps.after_step = self._after_step
        self._epochs = Epochs()
        if steps.goal in ("validation", "one-validation"):
            steps.later = Later(self._epochs, recording, self._stopping, self._calls_beside_training, self._has_company)
        steps.before_stop = self._tensors.all
        self._last_named_step = self._mode_changes = 0
        self._meter = Meter(torch, recording) if asked.meter else None
        self._stopwatch = Stopwatch(torch, recording) if asked.measure else None
        self._survival: Survival | None
        self._watcher: Watcher | None
        self._survival = self._watcher = None
        self._before_end: list[Callable[[], object]] = []
        if asked.watch:
            self.watch(asked.label, asked.expected, asked.watch == "status")

    def install(self) -> None:
        """Takes its places in PyTorch. One that is not where we know it costs only what it is for."""
        torch = self._torch
        if not _is_a_worker():
            ending.write_begin(self._recording, torch.__version__)
            outside.report_to(self._recording.note)
        # Before everything else, so that what the plan does is inside what is recorded. Not guarded: a
        # plan that cannot be applied must not look like one that was.
        self._change_the_program()
        atexit.register(self._finish)
        os.register_at_fork(after_in_child=self._forked)
        # Not `start()` itself: that initialises CUDA, which costs memory and time in programs that
        # never use it, and a process that has initialised CUDA cannot fork workers that do.
        torch.cuda._lazy_call(self._cuda_starts)
        for part in (
            self._watch_sudden_ends,
            self._watch_failures,
            self._memory.take_over,
            self._modules.install,
            self._sampling.install,
            self._wrap_optimizers,
            self._wrap_zero_grad,
            self._wrap_backward,
            self._wrap_compile,
            self._watch_autotune,
            self._wrap_spawned,
            self._imagine_ranks,
            self._ghosts.install,
            self._shorten_epochs,
            self._share_batches,
            self._watch_questions,
        ):
            try:
                part()
            except Exception as error:
                failed("agent.%s" % part.__name__.lstrip("_"), error)
        self._recording.seconds_imports = _seconds_since_start() or self._recording.seconds()

    def _change_the_program(self) -> None:
        """What a plan changes; longer batches, and the look for places in the script, take hold in the same way."""
        torch, recording, asked = self._torch, self._recording, self._asked
        hooks = Hooks(torch, recording)
        # Few runs ask for any of these, so few import them. What survives is outermost.
        if asked.survive:
            from plimsoll_agent.survive import survival

            self._survival = survival.apply(torch, hooks, recording, self._oom, lambda: self._steps.done)
        if asked.batch_length:
            from plimsoll_agent.inputs import worst_sequence

            worst_sequence.apply(torch, asked.batch_length, hooks, recording)
        if asked.image_size:
            from plimsoll_agent.inputs import worst_size

            self._before_end.append(worst_size.apply(torch, asked.image_size, recording))
        if asked.half:
            from plimsoll_agent.inputs import half

            half.apply(torch, asked.half, hooks)
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

    def watch(self, label: str | None, expected: int | None, is_quiet: bool = False) -> Watcher | None:
        """Watches this process from now on; the watcher. `expected`: bytes that PyTorch is to reserve at most, or None. One that is
        there already stays as it is, if it is not quiet: one that raises no alarms. None where nothing is real: on the phantom."""
        if self._watcher is not None and self._watcher.is_quiet and not is_quiet:
            self._watcher.finish()
            self._watcher = None
        if self._watcher is None and self._is_real:
            from plimsoll_agent.watch import watcher

            parts = (self._torch, self._recording, self._sampling, self._steps.optimizers, self._ending.last_steps)
            self._watcher = watcher.Watcher(*parts, label=label, expected=expected, is_quiet=is_quiet)
            self._steps.watching = self._watcher.step_ended
            if self._memory.started:
                self._watcher.start()
        return self._watcher

    def stop_watching(self) -> None:
        """Until somebody asks for it again."""
        if self._watcher is not None:
            self._watcher.finish()
        self._steps.watching = self._watcher = None
        if self._asked.watch == "status":
            # `plimsoll top` sees it as before.
            self.watch(self._asked.label, None, is_quiet=True)

    def step_by_hand(self, step: int) -> None:
        """A step has ended because the program says so; what counted as a step before does no longer."""
        if self._watcher is not None and self._memory.started:
            self._steps.watching = None
            place = self._memory.place()
            self._phases.end_of_step(step, place, self._recording.seconds())
            self._watcher.step_ended(step, place)

    def record_all(self) -> None:
        """From now on everything is recorded, if it was not."""
        self._sampling.wake()

    @property
    def is_watched(self) -> bool:
        """Whether somebody watches it already."""
        return self._watcher is not None and not self._watcher.is_quiet

    @property
    def session(self) -> str:
        """The folder in which it leaves what it sees."""
        return self._recording.session

    def keep(self, folder: str) -> Any:
        """Leaves a recording of everything so far in `folder`, and goes on. False if the device was not used."""
        return self._ending.so_far(folder)

    def _cuda_starts(self) -> None:
        """Called by PyTorch while it initialises CUDA in this process."""
        try:
            self._start()
        except Exception as error:  # Raised here it would become the user's "CUDA call failed lazily".
            failed("agent.start", error)

    def _start(self) -> None:
        if not self._recording.is_open:
            # A worker that uses the GPU after all: a rank, then, and worth a recording of its own.
            ending.write_begin(self._recording, self._torch.__version__, child=True)
            outside.report_to(self._recording.note)
            self._finish_with_multiprocessing()
        self.live = True
        self._recording.write("architectures", values=_architectures(self._torch))
        remark = torch_builds.remark(torch_builds.installed(self._torch.__file__))
        if remark and phantom.is_here():
            self._recording.note("torch-version", remark)
        self._memory.start()
        self._sampling.cuda_started()
        self._memory.limit(self._asked.most_reserved)
        self._oom.observe()
        self._phantom.watch_reads()
        if self._watcher is not None:
            self._watcher.start()
        if self._torch.cuda.memory.get_allocator_backend() != "native":
            self._recording.note(
                "allocator",
                "the script replaces PyTorch's caching allocator; only the native one can be recorded",
            )

    def _finish_with_multiprocessing(self) -> None:
        # multiprocessing ends a forked child with `os._exit`, after its own finalizers.
        from multiprocessing import util

        util.Finalize(None, self._finish, exitpriority=-100)
        if not self._is_real:
            self._sudden_end.terminated_by_its_parent()

    def _finish(self) -> None:
        self.live = False
        for it in self._before_end:
            it()
        self._phantom.finish()
        if self._stopwatch is not None and self._recording.is_open:
            self._stopwatch.write()
        self._ending.finish()
        if self._watcher is not None:
            self._watcher.finish()

    def _watch_questions(self) -> None:
        if not self._is_real:
            self._asked_size.install()

    def _watch_sudden_ends(self) -> None:
        if not self._is_real:
            self._sudden_end.install()

    def _watch_failures(self) -> None:
        if not self._is_real:
            self._oom.was_raised = self._memory_ran_out
            uncaught.of_program(self.program_failed)
            uncaught.of_thread(self._thread_failed)
            uncaught.of_child(self._child_failed)
            uncaught.watch_children()

    def program_failed(self, error: BaseException) -> None:
        """The main program of this process ends with an error, which is about to be printed."""
        self._is_over(error)
        # From here on a request to end finds the last words.
        self._sudden_end.terminated_by_its_parent()
        self._stopping.after_a_failure()

    def _child_failed(self, error: BaseException) -> None:
        self._ending.error = error
        self._is_over(error)
        self._stopping.after_a_failure()

    def _thread_failed(self, error: BaseException) -> None:
        is_training = self._phases.thread == threading.get_ident()
        if is_training or isinstance(error, self._torch.OutOfMemoryError):
            self._ending.training_failed(error)
            self._is_over(error)
            self._stopping.after_a_threads_failure(self._ending.trains_again)

    def _memory_ran_out(self) -> None:
        self._stopping.after_running_out(lambda: not self._oom.is_recent)

    def _is_over(self, error: BaseException) -> None:
        """For whoever started the run, where this process matters to its memory."""
        if self._memory.started or isinstance(error, self._torch.OutOfMemoryError):
            self._recording.has_failed()

    @guarded
    def _finish_by(self, signal: int | None) -> None:
        """The process ends now, by this signal of its own or, with None, by `os._exit`."""
        self._ending.signal = signal
        self._finish()

    def _forked(self) -> None:
        """In the child: silent, unless it initialises CUDA itself."""
        try:
            self._ending.forked()
            self._recording.forked()
            self._phases.forked()
            self._steps.forked()
            self._sampling.forked()
            self._stopping.forked()
            if self._watcher is not None:
                self._watcher.forked()
            if self._stopwatch is not None:
                self._stopwatch = Stopwatch(self._torch, self._recording)
            self._oom.forget()
            self._phantom.forget_reads()
            # A child whose parent had CUDA cannot use it; others may, and `_start` wakes them up.
            self.live = False
            if self._memory.started:
                self._memory.started = False
            else:
                self._memory.forked()
        except Exception:
            self.live = False

    def _after_step(self, step: int) -> None:
        """Names the tensors after the first steps, then less and less often."""
        self._sampling.step_ended(step)  # First: naming is part of no step that it measures.
        self._oom.go_on()
        self._phantom.step()
        if self._meter is not None:
            self._meter.step_ended(step)
        if self._stopwatch is not None:
            self._stopwatch.step_ended(step)
        if step == 1:
            if self._memory.started:
                first_step.write(self._torch, self._memory, self._recording, self._tensors.first_inputs)
        if not self._is_real:
            ranks.wait_for_watchdog(step)
        if (step <= 4 or step & (step - 1) == 0) and not self._memory.asleep:
            self._tensors.all()

    def _wrap_optimizers(self) -> None:
        agent, steps, optimizer_class = self, self._steps, self._torch.optim.Optimizer
        hook_step, make = optimizer_class.profile_hook_step, optimizer_class.__init__

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            try:
                make(self, *args, **kwargs)
            except BaseException as error:
                frames.hide_ours(error)
                raise
            if agent.live:
                steps.optimizer_made(self)

        # PyTorch puts every optimizer class's `step` through this function, whoever wrote it.
        def hooked_step(step: Function) -> Any:
            step = hook_step(step)

            return functools.wraps(step)(agent._counted_step(step))

        patch.put(optimizer_class, "__init__", __init__)
        patch.put(optimizer_class, "profile_hook_step", staticmethod(hooked_step))

    def wrap_optimizers_in_use(self) -> None:
        """PyTorch wraps a class's `step` when its first object is made; those that were made before us."""
        classes = [self._torch.optim.Optimizer]
        while classes:
            owner = classes.pop()
            classes += owner.__subclasses__()
            step = owner.__dict__.get("step")
            if getattr(step, "hooked", False):
                patch.put(owner, "step", functools.wraps(step)(self._counted_step(step)))

    def _wrap_zero_grad(self) -> None:
        for owner in (self._torch.optim.Optimizer, self._torch.nn.Module):
            patch.replace(owner, "zero_grad", self._wrapped_zero_grad)

    def _wrapped_zero_grad(self, zero_grad: Function) -> Function:
        phases = self._phases

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if not self.live:
                return zero_grad(*args, **kwargs)
            self._stopping.here(phases.thread)
            began = phases.begin(ZERO_GRAD)
            try:
                return zero_grad(*args, **kwargs)
            except BaseException as error:
                frames.hide_ours(error)
                raise
            finally:
                if began:
                    phases.end(ZERO_GRAD)

        return wrapped

    def _counted_step(self, step: Function) -> Function:
        steps, phases = self._steps, self._phases

        def counted(*args: Any, **kwargs: Any) -> Any:
            if not self.live:
                return step(*args, **kwargs)
            steps.optimizer_begins()
            began, returned = phases.begin(OPTIMIZER), False
            try:
                result = descent.stepped(step, args, kwargs)
                returned = True
            except BaseException as error:
                self._oom.passed_by(error)
                if self._survival is not None:
                    self._survival.optimizer_failed(error)
                frames.hide_ours(error)
                raise
            finally:
                outermost = steps.optimizer_leaves()
                if began:
                    phases.end(OPTIMIZER)
                if returned and args:
                    steps.optimizer_stepped(args[0], bool(outermost))
            self._stopping.here(phases.thread)
            return result

        return counted

    def _wrap_backward(self) -> None:
        autograd = self._torch.autograd
        for name in ("backward", "grad"):  # Tensor.backward calls the former.
            patch.replace(autograd, name, self._wrapped_backward)

    def _wrapped_backward(self, run: Function) -> Function:
        counts = run.__name__ == "backward"

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if not self.live:
                return run(*args, **kwargs)
            self._stopping.here(self._phases.thread)
            self._ghosts.training_begins()
            began = self._phases.begin(BACKWARD)
            try:
                result = run(*args, **kwargs)
            except BaseException as error:
                self._oom.passed_by(error)
                if began:
                    self._phases.end(BACKWARD)
                frames.hide_ours(error)
                raise
            if began:
                self._phases.end(BACKWARD)
                if counts:
                    self._steps.backward_ended()
            self._stopping.here(self._phases.thread)
            return result

        return wrapped

    def _wrap_compile(self) -> None:
        compile = self._torch.compile

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if not kwargs.get("disable"):
                self._step_aside_for_compile()
            res = compile(*args, **kwargs)
            if self._meter is not None:
                self._meter.meets_compiled()
            return res

        patch.put(self._torch, "compile", wrapped)

    def _share_batches(self) -> None:
        batches.install(self._torch, self._asked.own_batches)

    def _watch_autotune(self) -> None:
        autotune.watch(self._recording)

    @guarded
    def _step_aside_for_compile(self) -> None:
        if self.live:
            self._modules.step_aside()
            is_first = self._recording.note(
                "torch-compile",
                "the script uses torch.compile: from there on the recording has no module paths and no "
                "forward phases",
            )
            if is_first:
                self._recording.write("compiles")

    def _imagine_ranks(self) -> None:
        if not self._is_real:
            ranks.install(self._torch, self._recording, self._phantom)

    def _shorten_epochs(self) -> None:
        if self._steps.later is not None:
            self._epochs.install()
            self._modules.watch_modes(self._mode_changed)

    def _mode_changed(self) -> None:
        self._mode_changes += 1

    def _calls_beside_training(self) -> tuple[int, ...]:
        # What torch.compile made is called past us; that a model goes into evaluation mode is seen.
        changes = self._mode_changes if self._modules.has_stepped_aside else 0
        return (*self._phases.calls_beside_training(), changes)

    def _has_company(self) -> bool:
        dist = self._torch.distributed
        is_one_of_several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        return is_one_of_several and not os.environ.get(ranks.WORLD)

    def _wrap_spawned(self) -> None:
        """`torch.multiprocessing.spawn` sends a rank's exception to its parent and exits: look at it first."""
        spawn: Any = sys.modules["torch.multiprocessing.spawn"]  # The attribute of that name is a function.
        run = spawn._wrap

        def _wrap(function: Function, *args: Any) -> Any:
            @functools.wraps(function)
            def observed(*args: Any) -> Any:
                try:
                    return function(*args)
                except Exception as error:
                    self._child_failed(error)
                    raise

            return run(observed, *args)

        patch.put(spawn, "_wrap", _wrap)


def _goal(text: str, recording: Recording) -> int | str:
    """What PLIMSOLL_STOP asks for: "steady", "validation", "until-exit" or a number of steps; "one-validation" is one
    without a look whether memory rises some steps later."""
    kind, _, number = text.partition(":")
    if kind == "steps" and number.isdigit() and int(number) > 0:
        return int(number)
    if text in ("steady", "validation", "one-validation", "until-exit"):
        return text
    recording.note("stop", "PLIMSOLL_STOP=%s is not understood; the run stops once memory is steady" % text)
    return "steady"


def _architectures(torch: Torch) -> list[int]:
    """Compute capabilities that torch has kernels for, 90 for 9.0. Asked once CUDA is in use: before,
    the question alone would keep forked children from using it."""
    names = (flag[3:] for flag in (torch._C._cuda_getArchFlags() or "").split() if flag.startswith("sm_"))
    return [int(name) for name in names if name.isdigit()]


def _is_a_worker() -> bool:
    """Whether this process is a child of Python's multiprocessing, such as a DataLoader worker."""
    if "--multiprocessing-fork" in sys.argv:
        return True
    process = sys.modules.get("multiprocessing.process")
    if process is None:
        return False
    # A spawned child imports the main script, and torch with it, before it knows its parent.
    return process.parent_process() is not None or getattr(process.current_process(), "_inheriting", False)


def _seconds_since_start() -> float | None:
    """Since this process began; None if the system does not say."""
    try:
        with open("/proc/self/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/uptime") as file:
            uptime = float(file.read().split()[0])
        return round(uptime - ticks / os.sysconf("SC_CLK_TCK"), 6)
    except (OSError, ValueError, IndexError):
        return None
