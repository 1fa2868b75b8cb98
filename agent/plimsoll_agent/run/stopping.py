"""Ends a run that has shown enough, politely.

`raise SystemExit` from inside a hook: `finally` blocks and `atexit` functions run, nothing is
printed, the exit code is 0. A program that swallows it (a bare `except:` around its loop) gets it
again at the next hook; one that swallows it again and again is ended after its `atexit` functions.

Then somebody may wait for what will never come: a thread or a child for the end of the training, the main program for a
result. So the process has a few seconds to end, and fewer while it computes nothing. A `finally` that saves a checkpoint is
cut short by this, on a phantom: what it would write has learned nothing. A program that has failed on a phantom has as long: its
children may wait for it while it waits for them, as they would on a GPU, for ever.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from plimsoll_agent.run.recording import Recording

ATTEMPTS = 4
FAREWELL = 4.0
"""Seconds from our request to the end of a process on a phantom, at most."""

WAITING = 1.5
"""Seconds without work, within that time, that show that the process only waits."""

FAREWELL_OF_A_REAL_RUN = 120.0
"""The same on the machine's own device, where a checkpoint is worth its time."""

PAUSE = 0.25
LITTLE_WORK = 0.02
"""Seconds of processor time within a pause that count as none."""


class Stopping:
    """Whether the run is to end, and how often it was told."""

    def __init__(self, finish: Callable[[], object], recording: Recording, is_real: bool) -> None:
        self._finish = finish
        self._recording = recording
        self._is_real = is_real
        self._told = 0
        self.requested = self._waits_for_the_script = False
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

    def soon_after_a_failure(self, has_failed: Callable[[], bool]) -> None:
        """When the main program ends, and `has_failed()` then, nobody is waited for either."""
        before_threads_are_waited_for = getattr(threading, "_register_atexit", None)  # As concurrent.futures does.
        if before_threads_are_waited_for is not None and not self._is_real:
            before_threads_are_waited_for(self._main_ended, has_failed)

    def _main_ended(self, has_failed: Callable[[], bool]) -> None:
        if os.getpid() == self._pid and not self.requested and has_failed():
            with contextlib.suppress(RuntimeError):  # Since Python 3.12 no thread begins any more then.
                threading.Thread(target=self._watch, args=(1,), name="plimsoll-failed", daemon=True).start()

    def forked(self) -> None:
        """In a forked child: the parent's end is not the child's."""
        self.requested = self._waits_for_the_script = False
        self._told = 0
        self._pid = os.getpid()

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
        text = "the script caught plimsoll's request to end %d times, so it was ended" % (ATTEMPTS - 1)
        self._recording.note("stop-ignored", text)
        self._insist()

    def _watch(self, code: int = 0) -> None:
        """On a thread of its own: waits for the end of the process, and brings it about with this exit code."""
        began = worked = time.monotonic()
        before = time.process_time()
        longest = FAREWELL_OF_A_REAL_RUN if self._is_real else FAREWELL
        while time.monotonic() - began < longest:
            time.sleep(PAUSE)
            now = time.process_time()
            if LITTLE_WORK < now - before:
                worked = time.monotonic()
            elif not self._is_real and WAITING <= time.monotonic() - worked:
                break
            before = now
        self._insist(code)

    def _insist(self, code: int = 0) -> None:
        if os.getpid() != self._pid:
            return
        try:
            self._finish()
            _give_semaphores_back()
            if threading.current_thread() is threading.main_thread():
                atexit._run_exitfuncs()
        finally:
            os._exit(code)


def _give_semaphores_back() -> None:
    """Those of multiprocessing, whose tracker would say on standard error that they were left."""
    util, synchronize = map(sys.modules.get, ("multiprocessing.util", "multiprocessing.synchronize"))
    if util is None or synchronize is None:
        return
    for it in list(util._finalizer_registry.values()):
        if getattr(it, "_callback", None) is synchronize.SemLock._cleanup:
            with contextlib.suppress(Exception):
                it()
