"""Ends a run that has shown enough, politely.

`raise SystemExit` from inside a hook: `finally` blocks and `atexit` functions run, nothing is
printed, the exit code is 0. A program that swallows it (a bare `except:` around its loop) gets it
again at the next hook; one that swallows it again and again is ended after its `atexit` functions.
"""

import atexit
import os
import threading

ATTEMPTS = 4
LONGEST_FAREWELL = 120.0
"""Seconds that `finally` and `atexit` may take, saving a checkpoint for example, before we insist."""


class Stopping:
    """Whether the run is to end, and how often it was told."""

    def __init__(self, finish, note):
        self._finish = finish
        self._note = note
        self._told = 0
        self.requested = False
        self._pid = os.getpid()

    def request(self):
        """The run shall end at the next place where it can."""
        self.requested = True

    def forked(self):
        """In a forked child: the parent's end is not the child's."""
        self.requested = False
        self._told = 0
        self._pid = os.getpid()

    def here(self, thread):
        """Ends the run if that was requested; `thread` is the one that trains, None if unknown.

        Only that thread can be ended by an exception: one raised inside the autograd engine or in a
        loader's thread would end nothing or the wrong thing.
        """
        if not self.requested or thread not in (None, threading.get_ident()):
            return
        self._told += 1
        if self._told == 1:
            self._watch()
        if self._told < ATTEMPTS:
            # Not a subclass: a thread is silent about `SystemExit` itself only.
            raise SystemExit(0)
        self._insist("the script caught plimsoll's request to end %d times, so it was ended" % (ATTEMPTS - 1))

    def _watch(self):
        timer = threading.Timer(
            LONGEST_FAREWELL,
            self._insist,
            ["the script had not ended %d s after plimsoll's request, so it was ended" % LONGEST_FAREWELL],
        )
        timer.daemon = True
        timer.start()

    def _insist(self, text):
        if os.getpid() != self._pid:
            return
        self._note("stop-ignored", text)
        try:
            self._finish()
            if threading.current_thread() is threading.main_thread():
                atexit._run_exitfuncs()
        finally:
            os._exit(0)
