"""Ends a run that has shown enough, or has failed, politely.

`raise SystemExit` from inside a hook: `finally` blocks and `atexit` functions run, nothing is
printed, the exit code is 0. A program that swallows it (a bare `except:` around its loop) gets it
again at the next hook; one that swallows it again and again is ended after its `atexit` functions.

Then a part of the program may wait for ever: a thread or a child for the end of the training, the main program for a
result. So the process has a few seconds to end, and fewer while it computes nothing. A `finally` that saves a checkpoint is
cut short by this, on a phantom: what it would write has learned nothing.

A program that has failed on a phantom has somewhat longer, for what it does at its end: it may wait for its children while they wait for
it, as they would on a GPU, for ever. Where only the thread that trained has failed, or where the program has caught that memory ran
out, it may go on: it is ended once neither it nor what it has started has computed anything for a while.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

from plimsoll_agent.run import host
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Callable

    from plimsoll_agent.run.recording import Recording

ATTEMPTS = 4
FAREWELL = 4.0
"""Seconds from our request to the end of a process on a phantom, at most."""

WAITING = 1.5
"""Seconds without work, within that time, that show that the process only waits."""

FAREWELL_OF_A_FAILURE, WAITING_AFTER_A_FAILURE = 10.0, 3.0
"""The same for a program that has failed: what it does at its end may be worth seeing, such as a message that it sends."""

WAITING_FOR_A_THREAD, WAITING_WITHOUT_MEMORY = 6.0, 20.0
"""Seconds without work, after the thread that trained has failed, and after memory ran out: a program may pause before it tries again."""

FAREWELL_OF_A_REAL_RUN = 120.0
"""The same on the machine's own device, where a checkpoint is worth its time."""

WRITING_OUT = 1.0
"""Seconds, at most, for what the script has printed and Python has not written yet."""

PAUSE = 0.25
LITTLE_WORK = 0.02
"""Seconds of processor time within a pause that count as none."""


class Stopping:
    """Whether the run is to end, and how often the program was asked to."""

    def __init__(self, finish: Callable[[], object], recording: Recording, is_real: bool) -> None:
        self._finish = finish
        self._recording = recording
        self._is_real = is_real
        self._told = 0
        self.requested = self._waits_for_the_script = self._lacks_memory = False
        self._pid = os.getpid()

    def request(self) -> None:
        """The run shall end at the next place where it can."""
        if not self.requested:
            self.requested = True
            if not self._is_real:
                self._recording.was_asked_to_stop()
            threading.Thread(target=self._watch, name="plimsoll-stopping", daemon=True).start()

    def soon_after_the_script(self) -> None:
        """Memory was steady: a script that comes to its end by itself from now on is not waited for either."""
        if not (self._is_real or self.requested or self._waits_for_the_script):
            self._waits_for_the_script = True
            threading.Thread(target=self._wait_for_the_script, name="plimsoll-script", daemon=True).start()

    def _wait_for_the_script(self) -> None:
        while threading.main_thread().is_alive():
            time.sleep(PAUSE)
        if not self.requested:
            self._recording.was_asked_to_stop()
            self._watch()

    def after_a_failure(self) -> None:
        """The program has failed, and is about to end: the agent does not wait long for other threads and processes."""
        self._on_a_thread(lambda: _stood_still(WAITING_AFTER_A_FAILURE, time.process_time, most=FAREWELL_OF_A_FAILURE))

    def after_a_threads_failure(self, goes_on: Callable[[], bool]) -> None:
        """The thread that trained has failed; `goes_on()`: the program trains all the same."""
        self._on_a_thread(lambda: _stood_still(WAITING_FOR_A_THREAD, host.worked, goes_on))

    def after_running_out(self, goes_on: Callable[[], bool]) -> None:
        """Memory ran out; `goes_on()`: the program lives with that."""
        if not self._lacks_memory:
            self._lacks_memory = True
            self._on_a_thread(lambda: _stood_still(WAITING_WITHOUT_MEMORY, host.worked, goes_on))

    def _on_a_thread(self, wait: Callable[[], bool]) -> None:
        # A program with a prompt waits for its user.
        is_interactive = sys.flags.interactive or hasattr(sys, "ps1")
        if not (self._is_real or self.requested or is_interactive):
            threading.Thread(target=self._end_a_failure, args=(wait,), name="plimsoll-failed", daemon=True).start()

    def _end_a_failure(self, wait: Callable[[], bool]) -> None:
        began = time.monotonic()
        while wait():
            if not _is_debugged():
                if self._recording.is_open:
                    self._recording.write("waited", seconds=round(time.monotonic() - began, 1))
                self._insist(1)
        self._lacks_memory = False

    def forked(self) -> None:
        """In a forked child: the parent's end is not the child's."""
        self.requested = self._waits_for_the_script = self._lacks_memory = False
        self._told = 0
        self._pid = os.getpid()

    @guarded
    def here(self, thread: int | None) -> None:
        """Ends the run if that was requested; `thread` is the one that trains, None if unknown.

        Only that thread can be ended by an exception: one raised inside the autograd engine or in a
        loader's thread would end nothing or the wrong thing.
        """
        if not self.requested or thread not in (None, threading.get_ident()):
            return
        self._told += 1
        if self._told < ATTEMPTS:
            # Not a subclass: a thread is silent about `SystemExit` itself only.
            raise SystemExit(0)
        text = "the script caught plimsoll's request to end %d times, so plimsoll ended it" % (ATTEMPTS - 1)
        self._recording.note("stop-ignored", text)
        self._insist()

    def _watch(self) -> None:
        """On a thread of its own: waits for the end of the process, and brings it about."""
        if self._is_real:
            time.sleep(FAREWELL_OF_A_REAL_RUN)
        else:
            _stood_still(WAITING, time.process_time, most=FAREWELL)
        self._insist()

    def _insist(self, code: int = 0) -> None:
        if os.getpid() != self._pid:
            return
        try:
            self._finish()
            _give_semaphores_back()
            if threading.current_thread() is threading.main_thread():
                atexit._run_exitfuncs()
        finally:
            try:
                _write_out()
            finally:
                os._exit(code)


def _write_out() -> None:
    """What the script has printed and Python has not written yet. Not for long: a thread that stands may hold the stream."""

    def flush() -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()

    if threading.current_thread() is threading.main_thread():
        flush()
    else:
        beside = threading.Thread(target=flush, name="plimsoll-output", daemon=True)
        beside.start()
        beside.join(WRITING_OUT)


def _stood_still(waiting: float, work: Callable[[], float], is_over: Callable[[], bool] = lambda: False, most: float = math.inf) -> bool:
    """True when `work()`, in seconds, has hardly grown for `waiting` seconds, and after `most` seconds of work and of waiting;
    False once `is_over()`. A time in which a thread waited for a processor or a disk is neither: a busy machine says nothing
    of the program."""
    before, still, spent = work(), 0.0, 0.0
    while not is_over():
        time.sleep(PAUSE)
        now = work()
        goes_on = LITTLE_WORK < now - before or _awaits_a_processor()
        still = 0.0 if goes_on else still + PAUSE
        spent += now - before if goes_on else PAUSE
        before = now
        if waiting <= still or most <= spent:
            return True
    return False


def _awaits_a_processor() -> bool:
    """Another thread of this process could go on at once, but for a processor or a disk."""
    own = str(threading.get_native_id())
    for name in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # It has ended.
            if name != own and _state(name) in (b"R", b"D"):
                return True
    return False


def _state(thread: str) -> bytes:
    with open("/proc/self/task/%s/stat" % thread, "rb") as file:
        return file.read().rpartition(b")")[2].split()[0]


def _give_semaphores_back() -> None:
    """Those of multiprocessing, whose tracker would say on standard error that they were left."""
    util, synchronize = map(sys.modules.get, ("multiprocessing.util", "multiprocessing.synchronize"))
    if util is None or synchronize is None:
        return
    for it in list(util._finalizer_registry.values()):
        if getattr(it, "_callback", None) is synchronize.SemLock._cleanup:
            with contextlib.suppress(Exception):
                it()


def _is_debugged() -> bool:
    """Whether the main program stands in a debugger that waits for input."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        if frame.f_globals.get("__name__", "").split(".")[0] in ("bdb", "cmd", "code", "pdb"):
            return True
        frame = frame.f_back
    return False
