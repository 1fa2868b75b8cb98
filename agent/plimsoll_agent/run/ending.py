"""The last lines that a process records: what it used, how it ended, the snapshot.

Runs at exit, after the program's own `atexit` functions. Python has by then put the exception that
ended the main program into `sys.last_value`; reading it there, instead of wrapping
`sys.excepthook`, leaves whatever the program installed in place (rich, IPython, its own).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from plimsoll_agent import FORMAT, settings
from plimsoll_agent.run import frames, hints, host, trainers
from plimsoll_agent.run.guard import failed
from plimsoll_agent.run.refusal import behind

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Described, Named, OfPhantom, Torch
    from plimsoll_agent.run.graphs import Graphs
    from plimsoll_agent.run.keepers import Keepers
    from plimsoll_agent.run.memory import Memory
    from plimsoll_agent.run.oom import OutOfMemory
    from plimsoll_agent.run.recording import Recording
    from plimsoll_agent.run.saving import Saving
    from plimsoll_agent.run.stopping import Stopping
    from plimsoll_agent.run.training_steps import Steps


class Ending:
    """Writes the end of one process, once."""

    def __init__(
        self, torch: Torch, recording: Recording, memory: Memory, steps: Steps, tensors: Any, keepers: Keepers, graphs: Graphs, oom: OutOfMemory, phantom: OfPhantom, stopping: Stopping,
        saving: Saving,
    ) -> None:
        self._torch = torch
        self._recording = recording
        self._memory = memory
        self._steps = steps
        self._tensors = tensors
        self._keepers = keepers
        self._graphs = graphs
        self._oom = oom
        self._phantom = phantom
        self._stopping = stopping
        self._saving = saving
        self._pid = os.getpid()
        self._begin()

    def _begin(self) -> None:
        self._finished = self.is_finishing = False
        # A thread that ends the process waits for what this thread is writing.
        self._writing = threading.RLock()
        self.error: BaseException | None = None
        self.signal: int | None = None
        self._of_thread: tuple[BaseException, int] | None = None

    def forked(self) -> None:
        """In a forked child: nothing has been said yet."""
        self._pid = os.getpid()
        self._begin()

    def finish(self) -> None:
        """Everything that is still to be said, once. Returns when it is written, whichever thread does it."""
        if os.getpid() != self._pid or not self._recording.is_open:
            return  # A worker that never used the GPU leaves nothing.
        with self._writing:
            if not self._finished:
                self._finished = self.is_finishing = True
                try:
                    self._finish()
                finally:
                    self.is_finishing = False

    def _finish(self) -> None:
        """Tries each part, also where others failed."""
        began = time.time()
        error = self._what_ended_it()
        ran_out = self._oom.behind(error)
        for part in (
            self._phantom.stop_watching,
            self._steps.write_kept_aside,
            self._tensors.all,
            lambda: self._keepers.of_the_ended(error, ran_out is not None),
            lambda: self._graphs.of_the_ended(ran_out),
            lambda: self._oom.ended(ran_out),
            self._note_what_is_collected,
            self._phantom.write_reads,
            self._phantom.write_report,
            self._write_compiled,
            self._write_stats,
            self._write_snapshot,
        ):
            try:
                part()
            except Exception as problem:
                failed("ending.%s" % getattr(part, "__name__", "oom"), problem)
        self._write_end(error, ran_out is not None, began)
        if isinstance(error, KeyboardInterrupt):
            _die_of_the_interrupt_after_all()

    def so_far(self, folder: str) -> bool:
        """What would be left if the process ended here, as a session in `folder`; it goes on. False if there is
        nothing to tell: the device was not used."""
        if not (self._memory.started and self._recording.is_open):
            return False
        began = time.time()
        error = self._what_ended_it()
        ran_out = self._oom.behind(error)
        self._tensors.all()
        self._oom.ended(ran_out)
        own, self._recording = self._recording, self._recording.copied_to(folder)
        try:
            self._write_stats()
            self._write_snapshot()
            self._write_end(error, ran_out is not None, began)
        finally:
            self._recording = own
        return True

    def last_steps(self, folder: str, most: int = 4 << 20) -> bool:
        """Leaves the last of what was seen as a session in `folder`, for a look at what grows. False if the device was
        not used."""
        if not (self._memory.started and self._recording.is_open):
            return False
        own, self._recording = self._recording, self._recording.end_copied_to(folder, most)
        try:
            for step, place, seconds in self._steps.last:
                self._recording.write("mark", what="step_end", step=step, phase=None, t=seconds, **place.fields())
            self._write_stats()
            self._write_snapshot()
        finally:
            self._recording = own
        return True

    def training_failed(self, error: BaseException) -> None:
        """The thread that trains has ended with this error; so has the program, if it makes no step after that."""
        self._of_thread = (error, self._steps.done)

    def trains_again(self) -> bool:
        """Whether a step was made since then."""
        return self._of_thread is not None and self._of_thread[1] < self._steps.done

    def _what_ended_it(self) -> BaseException | None:
        of_thread = self._of_thread[0] if self._of_thread is not None and not self.trains_again() else None
        error = self.error or getattr(sys, "last_value", None) or of_thread
        # An interactive session sets it too and goes on.
        return None if getattr(sys, "ps1", None) else error

    def _write_stats(self) -> None:
        if self._memory.started:
            self._recording.write("host", **host.in_the_end(self._torch))
        for totals in self._memory.totals():
            self._recording.write("stats", **totals)

    def _write_snapshot(self) -> None:
        if self._memory.started:
            self._recording.make_folder()
            self._memory.dump(os.path.join(self._recording.folder, "snapshot.pickle"))

    def _write_compiled(self) -> None:
        """How many graphs this process found compiled, and so did not see what compiling them takes."""
        dynamo = sys.modules.get("torch._dynamo.utils")
        counters = getattr(dynamo, "counters", {})
        if counters and counters["stats"]["unique_graphs"]:
            found = counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"]
            self._recording.write("compiled", found=found)

    def _note_what_is_collected(self) -> None:
        if trainers.collect_inputs():
            self._recording.note("inputs-collected", "the Trainer's evaluation collects its inputs (`include_for_metrics`)")

    def _mentions(self) -> list[str]:
        """What else the script comes to, by its text and the settings of its trainer; not a checkpoint where one was seen."""
        return [it for it in hints.mentions() if it != hints.CHECKPOINT or not self._saving.was_seen]

    def _write_end(self, error: BaseException | None, ran_out: bool, began: float) -> None:
        steps = self._steps
        refusal = behind(error)
        if refusal is not None:
            self._recording.write("refused", id=refusal.remedy, why=refusal.whom)
        why, exit_code = _why(error, ran_out)
        later, failed_later = steps.later, None
        if error is not None and why == "exception" and later is not None and later.is_under_way:
            # The training steps were seen. What failed may have missed the rest of an epoch that we ended.
            failed_later = _in_short(error)
            self._recording.note("failed-later", "after its training steps the script raised %s" % failed_later)
            error, why, exit_code = None, steps.why or "steady", 0
        if error is None and self._stopping.requested:
            why, exit_code = steps.why or "steps", 0
        self._recording.write(
            "end",
            why=why,
            steps=steps.done,
            steady=steps.steady,
            has_optimizer=steps.has_optimizer,
            exit_code=exit_code,
            signal=self.signal,
            exception=_described(error),
            later=later.told() if later is not None else None,
            mentions=self._mentions() if steps.done and why != "exit" else [],
            failed_later=failed_later,
            ahead=_ahead(steps),
            after_loops=steps.after_the_loops,
            used_cuda=self._memory.started,
            seconds_imports=self._recording.seconds_imports,
            seconds_ending=round(time.time() - began, 6),
            seconds=self._recording.seconds(),
        )


def _ahead(steps: Steps) -> Named:
    """How far the script would have gone, as far as that is known: batches that training took, how many of them an epoch has, and all
    epochs; steps in all."""
    later, ahead = steps.later, steps.ahead
    batches, in_an_epoch = later.batches() if later is not None else (0, None)
    return {
        "batches": batches or None,
        "batches_an_epoch": in_an_epoch,
        "epochs": ahead["epochs"],
        "steps": ahead["steps"],
        "stage": later.not_seen(ahead["stage"]) if later is not None else ahead["stage"],
        "turns": later.anew["turns"] if later is not None and later.anew is not None else None,
        "turned_at": later.turned_at if later is not None else [],
    }


def _die_of_the_interrupt_after_all() -> None:
    """Python ends with SIGINT only if the last source text it ran ended with KeyboardInterrupt.

    What we did at exit may have run other text (anything that calls `exec` or `eval`); without this
    the exit status would be 1 instead of the signal.
    """
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        pass


def without_torch(recording: Recording, error: BaseException) -> None:
    """The end of a program that needs torch and has none."""
    write_begin(recording, None)
    recording.write(
        "end",
        why="exception",
        steps=0,
        steady=False,
        exit_code=1,
        exception=_described(error),
        used_cuda=False,
        seconds_imports=0.0,
        seconds=recording.seconds(),
    )


def write_begin(recording: Recording, torch_version: str | None, child: bool = False) -> None:
    """The first line: what this process is; `child`: one of multiprocessing's."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        cwd = os.getcwd()
    except OSError:
        cwd = None
    recording.write(
        "begin",
        format=FORMAT,
        pid=os.getpid(),
        argv=_argv(),
        cwd=cwd,
        python="%d.%d.%d" % sys.version_info[:3],
        torch=torch_version,
        script=os.path.abspath(main) if main else None,
        rank=settings.number("RANK"),
        world_size=settings.number("WORLD_SIZE"),
        machine=settings.number("GROUP_RANK"),
        child=child,
    )


def _why(error: BaseException | None, ran_out: bool) -> tuple[str, int | None]:
    if error is None:
        return "exit", None
    if ran_out:
        return "oom", 1
    if isinstance(error, KeyboardInterrupt):
        return "interrupt", None
    return "exception", 1


def _in_short(error: BaseException) -> str:
    described: Any = _described(error)
    frame = described["user_frame"]
    place = " at %s:%d" % (os.path.basename(frame["file"]), frame["line"]) if frame else ""
    message = described["message"].partition("\n")[0]
    return "%s%s%s" % (described["type"], ": " + message if message else "", place)


def _described(error: BaseException | None) -> Described | None:
    if error is None:
        return None
    stack = frames.of_traceback(error.__traceback__)
    return {
        "type": type(error).__name__,
        "message": str(error),
        "user_frame": frames.user_frame(stack),
    }


def _argv() -> list[str]:
    """The program and its arguments. A package that imports PyTorch itself does so before Python has the path of the module that `-m` names."""
    argv = list(getattr(sys, "argv", []))
    return sys.orig_argv[sys.orig_argv.index("-m") :] if argv[:1] == ["-m"] and "-m" in sys.orig_argv else argv
