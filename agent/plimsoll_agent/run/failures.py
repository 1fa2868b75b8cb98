"""After an uncaught error, or after memory ran out, the rest of the process may wait for ever.

`uncaught` notices such errors. On a phantom the agent then ends the process, unless it goes on; on the machine's own device it does not.
"""

from __future__ import annotations

import functools
import sys
import threading
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run import refusal, uncaught
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Callable

    from plimsoll_agent.kinds import Function
    from plimsoll_agent.run.ending import Ending
    from plimsoll_agent.run.memory import Memory
    from plimsoll_agent.run.oom import OutOfMemory
    from plimsoll_agent.run.phases import Phases
    from plimsoll_agent.run.recording import Recording
    from plimsoll_agent.run.stopping import Stopping
    from plimsoll_agent.run.sudden_end import SuddenEnd


class Failures:
    """Reports what failed, for the last lines of the process and for the program that waits for it."""

    def __init__(
        self,
        memory: Memory,
        recording: Recording,
        phases: Phases,
        oom: OutOfMemory,
        ending: Ending,
        sudden_end: SuddenEnd,
        stopping: Stopping,
        folds: bool,
        opens: Callable[[], None],
    ) -> None:
        self._memory, self._recording, self._phases = memory, recording, phases
        self._oom, self._ending, self._sudden_end, self._stopping = oom, ending, sudden_end, stopping
        self._folds, self._opens = folds, opens

    def watch(self) -> None:
        """From now on: in the program, in its threads, in its children."""
        self._oom.was_raised = self._memory_ran_out
        uncaught.of_program(self.of_program)
        uncaught.of_thread(self._of_thread)
        uncaught.of_child(self._of_child)
        uncaught.watch_children()

    def watch_spawned(self) -> None:
        """`torch.multiprocessing.spawn` sends a rank's exception to its parent and exits: look at it first."""
        spawn: Any = sys.modules["torch.multiprocessing.spawn"]  # The attribute of that name is a function.
        run = spawn._wrap

        def _wrap(function: Function, *args: Any) -> Any:
            @functools.wraps(function)
            def observed(*args: Any) -> Any:
                try:
                    return function(*args)
                except Exception as error:
                    self._of_child(error)
                    raise

            return run(observed, *args)

        patch.put(spawn, "_wrap", _wrap)

    @guarded
    def of_program(self, error: BaseException) -> None:
        """The main program of this process ends with an error, which is about to be printed."""
        # A child that is spawned runs the script once more before its own function: what fails there its parent does not know.
        self._opens()
        self._is_over(error)
        # From here on a request to end finds the last words.
        self._sudden_end.ended_by_another()
        self._stopping.after_a_failure()
        if self._folds and (self._oom.behind(error) is not None or refusal.is_behind(error)):
            uncaught.fold()

    @guarded
    def of_a_worker(self, error: BaseException) -> None:
        """This process of a serving engine ends because of an error, which its own program logs and does not raise."""
        self._ending.error = self._ending.error or error

    @guarded
    def _of_child(self, error: BaseException) -> None:
        self._ending.error = error
        self._is_over(error)
        self._stopping.after_a_failure()

    def _of_thread(self, error: BaseException) -> None:
        is_training = self._phases.thread == threading.get_ident()
        if is_training or self._oom.behind(error) is not None:
            self._ending.training_failed(error)
            self._is_over(error)
            self._stopping.after_a_threads_failure(self._ending.trains_again)

    def _memory_ran_out(self) -> None:
        self._stopping.after_running_out(lambda: not self._oom.is_recent)

    def _is_over(self, error: BaseException) -> None:
        """For the program that started the run, where this process matters to the memory of the run."""
        if self._memory.started or self._oom.behind(error) is not None:
            self._recording.has_failed()
