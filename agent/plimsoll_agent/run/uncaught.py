"""Notices an uncaught error that ends the program, a thread or a child of multiprocessing.

What a program may replace stays its own (`sys.excepthook`, `threading.excepthook`); rich, IPython and others do. Seen are

    the program   the audit event of Python that comes before `sys.excepthook` is called, with nothing of Python around it
    a thread      what `threading` makes for each new thread to call then
    a child       `BaseProcess._bootstrap`, which prints the error and ends with code 1

Interrupts and `SystemExit` are no errors. Nothing here knows what follows from one. A report that says where memory ran out, or that the
run was interrupted, comes with the last line of the traceback only.
"""

from __future__ import annotations

import functools
import sys
import threading

from plimsoll_agent import patch
from plimsoll_agent.run.after_import import after_import
from plimsoll_agent.run.guard import failed, guarded

TYPE_CHECKING = False  # As typing has it, which is not imported for this.
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from plimsoll_agent.kinds import Arguments, Function

_NO_ERRORS = (KeyboardInterrupt, SystemExit)
_of_program: Callable[[BaseException], object] | None = None
_of_child: Callable[[BaseException], object] | None = None
_folds_interrupts = False
_is_watching = False


def of_program(act: Callable[[BaseException], object]) -> None:
    """`act(error)` when one is about to be printed, after which the program ends."""
    global _of_program
    _of_program = act
    _watch_program()


def fold() -> None:
    """Python prints the error that ends this process without its traceback, if the program has no hook of its own."""
    if sys.excepthook is sys.__excepthook__:
        sys.tracebacklimit = 0


def fold_interrupts() -> None:
    """To be called at the start: most interrupts come while torch is imported, or between two batches."""
    global _folds_interrupts
    _folds_interrupts = True
    _watch_program()


def _watch_program() -> None:
    global _is_watching
    if not _is_watching:
        _is_watching = True
        sys.addaudithook(_audited)


def _audited(event: str, arguments: Arguments) -> None:
    if event != "sys.excepthook":
        return
    try:
        error = arguments[2]
        if isinstance(error, KeyboardInterrupt):
            if _folds_interrupts:
                fold()
            return
        is_last = sys._getframe().f_back is None and threading.current_thread() is threading.main_thread()
        if is_last and _of_program is not None and not isinstance(error, _NO_ERRORS):
            _of_program(error)
    except Exception as problem:  # Raised here it would take the place of the error.
        failed("uncaught.of_program", problem)


def of_thread(act: Callable[[BaseException], object]) -> None:
    """`act(error)`, called in the thread, for threads that are made from now on."""
    act = guarded(act)

    def observing(make: Function) -> Function:
        def made() -> Function:
            invoke = make()

            def invoked(thread: Any) -> None:
                error = sys.exc_info()[1]
                if error is not None and not isinstance(error, _NO_ERRORS):
                    act(error)
                invoke(thread)

            return invoked

        return made

    if hasattr(threading, "_make_invoke_excepthook"):
        patch.replace(threading, "_make_invoke_excepthook", observing)


def of_child(act: Callable[[BaseException], object]) -> None:
    """`act(error)` in a child of multiprocessing, of which this is one or the parent."""
    global _of_child
    _of_child = guarded(act)


def watch_children() -> None:
    """To be called before multiprocessing is used: one that is spawned is under way when it imports torch."""
    after_import("multiprocessing.process", _observe)


@guarded
def _hide_ours(error: BaseException) -> None:
    from plimsoll_agent.run import frames  # Few children fail, and all Pythons of a run import this module.

    frames.hide_ours(error)


def _observe(module: Any) -> None:
    patch.replace(module.BaseProcess, "_bootstrap", _observing, once=True)


def _observing(bootstrap: Function) -> Function:
    def _bootstrap(process: Any, *args: Any, **kwargs: Any) -> Any:
        run = process.run

        @functools.wraps(run)
        def observed() -> None:
            try:
                run()
            except _NO_ERRORS as error:
                if _folds_interrupts and isinstance(error, KeyboardInterrupt):
                    fold()
                raise
            except BaseException as error:
                if _of_child is not None:
                    _of_child(error)
                _hide_ours(error)
                raise

        process.run = observed
        return bootstrap(process, *args, **kwargs)

    return _bootstrap
