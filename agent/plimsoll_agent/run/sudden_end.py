"""Ends without exit functions of Python: `os._exit`, a signal that a process sends itself, an alarm without a handler.

Such a run would leave no last lines in the recording. So the agent records them before: in front of the call, or in a handler that
then does what the signal would have done. Of the signals from other processes it handles those by which a scheduler, a closed terminal, or
the parent of a child of multiprocessing ends a program: what was seen until then is an answer. A program that goes back to how these signals end a
process by default (vLLM's engine, on its way out) has them handled all the same, and what is being written is written to its end.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from plimsoll_agent.kinds import Function

HARMLESS = {"SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU"}
"""What does not end a process that does not handle it."""

CRASHES = {"SIGABRT", "SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS"}
"""What says that something went wrong, whoever sends it."""

_REQUESTS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
"""By which others ask a process to end."""
ENDING = {it for it in signal.Signals if it.name not in HARMLESS | CRASHES}
OF_TIMER = {signal.ITIMER_REAL: signal.SIGALRM, signal.ITIMER_VIRTUAL: signal.SIGVTALRM, signal.ITIMER_PROF: signal.SIGPROF}


class SuddenEnd:
    """Says the last words of this process; `finish(signal)` writes them, `is_finishing()` is true meanwhile."""

    def __init__(self, finish: Callable[[int | None], object], is_finishing: Callable[[], bool]) -> None:
        self._finish, self._is_finishing = finish, is_finishing
        self._kill: Function = os.kill
        self._set: Function = signal.signal

    def install(self) -> None:
        """Takes the place of what ends a process."""
        self.ended_by_another()
        patch.put(os, "_exit", self._before(os._exit, lambda code: [None]))
        patch.put(os, "kill", self._before(os.kill, self._kills))
        patch.put(os, "killpg", self._before(os.killpg, lambda group, number: self._kills(-group, number)))
        patch.put(signal, "raise_signal", self._before(signal.raise_signal, lambda number: self._kills(os.getpid(), number)))
        patch.replace(signal, "signal", self._by_default)
        patch.put(signal, "alarm", self._watching_for(signal.alarm, lambda seconds: (signal.SIGALRM, seconds)))
        timer = self._watching_for(signal.setitimer, lambda which, seconds, interval=0.0: (OF_TIMER.get(which), seconds))
        patch.put(signal, "setitimer", timer)

    def ended_by_another(self) -> None:
        """From now on SIGTERM and SIGHUP say the last words, too, where the program does not handle them."""
        self._handle(signal.SIGTERM)
        self._handle(signal.SIGHUP)

    def _by_default(self, real: Function) -> Function:
        @functools.wraps(real)
        def wrapped(number: int, handler: Any) -> Any:
            is_request = handler == signal.SIG_DFL and number in _REQUESTS
            before = real(number, self._dies if is_request else handler)
            return signal.SIG_DFL if before == self._dies else before

        return wrapped

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Within, no request to end cuts off what this process writes; one that would have ended it does so afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        came: list[int] = []
        ours = (signal.SIG_DFL, signal.default_int_handler, self._dies)
        before = {it: signal.getsignal(it) for it in _REQUESTS}
        held = [number for number, handler in before.items() if handler in ours]
        for number in held:
            signal.signal(number, lambda number, _frame: came.append(number))
        try:
            yield
        finally:
            for number in held:
                signal.signal(number, before[number])
            for it in map(signal.Signals, came):
                if before[it] != signal.default_int_handler:
                    signal.raise_signal(it)

    def _before(self, call: Function, ends: Callable[..., list[int | None]]) -> Function:
        """`call`, with the last words before it where `ends` of its arguments is [the signal, or None]."""

        @functools.wraps(call)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            try:
                how = ends(*args, **kwargs)
            except Exception:  # `call` says what is wrong with them.
                how = []
            if how:
                self._finish(how[0])
            return call(*args, **kwargs)

        return wrapped

    def _kills(self, pid: int, number: int) -> list[int | None]:
        is_ours = pid in (os.getpid(), 0, -os.getpgrp())
        if not is_ours or number not in ENDING:
            return []
        is_fatal = number == signal.SIGKILL or signal.getsignal(number) in (signal.SIG_DFL, self._dies)
        return [int(number)] if is_fatal else []

    def _watching_for(self, call: Function, timer: Callable[..., tuple[int | None, float]]) -> Function:
        @functools.wraps(call)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            try:
                number, seconds = timer(*args, **kwargs)
            except Exception:
                number, seconds = None, 0
            if number is not None and seconds:
                self._handle(number)
            return call(*args, **kwargs)

        return wrapped

    @guarded
    def _handle(self, number: int) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, self._dies)

    def _dies(self, number: int, _frame: FrameType | None) -> None:
        if self._is_finishing():
            return
        # Who is terminated did not do it.
        self._finish(None if number in _REQUESTS else int(number))
        self._set(number, signal.SIG_DFL)
        self._kill(os.getpid(), number)
