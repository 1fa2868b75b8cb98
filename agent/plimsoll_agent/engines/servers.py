"""Servers of this process: one that is ready has shown that, and is asked to end, because it never does by itself. Its engine's processes get the time
to write what they used."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.after_import import after_import
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from plimsoll_agent.engines.asked import Program
    from plimsoll_agent.kinds import Function, Torch
    from plimsoll_agent.run.recording import Recording

FAREWELL = 30.0
"""Seconds in which a process of an engine may do nothing and is still waited for: four ranks on two busy cores need more than that for their last words.
vLLM gives the ranks of one engine 5."""
_LONGEST_FAREWELL = 10 * FAREWELL
"""Seconds for one that looks again and again whether another has ended."""
_ENGINES = ("vllm", "sglang")
"""Who has imported one and starts uvicorn, serves it: with the engine's own server, which may be `__main__`, or with one of the user's. Others serve
a model that they hold themselves, if they have used the GPU by then."""


class Servers:
    """Those that listen; `goal` is where the run ends, as `settings` has it."""

    def __init__(self, torch: Torch, recording: Recording, goal: str, program: Program) -> None:
        self._torch, self._recording, self._goal, self._program = torch, recording, goal, program
        self._listening: list[Any] = []

    def install(self) -> None:
        """Sees each server of uvicorn."""
        after_import("uvicorn.server", lambda module: patch.replace(module.Server, "startup", self._startup))

    def _startup(self, real: Function) -> Function:
        async def startup(server: Any, *args: Any, **kwargs: Any) -> None:
            self._watch_its_end(server)
            await real(server, *args, **kwargs)
            self._listens(server)

        return startup

    @guarded
    def _watch_its_end(self, server: Any) -> None:
        """uvicorn logs that its port is taken, ends its application, and exits. SGLang's waits for the thread that sends the first request, which
        goes on asking whoever has the port."""

        @guarded
        def cannot_listen(error: BaseException | None) -> None:
            if isinstance(error, OSError):
                self._program.failed(error)
                self._program.stopping.after_a_failure()

        def ending(real: Function) -> Function:
            async def shutdown(*args: Any, **kwargs: Any) -> Any:
                cannot_listen(sys.exc_info()[1])
                return await real(*args, **kwargs)

            return shutdown

        if hasattr(server, "lifespan"):
            patch.replace(server.lifespan, "shutdown", ending)

    @guarded
    def _listens(self, server: Any) -> None:
        # A training may have a server beside it that shows how it goes.
        if server.should_exit or self._program.steps.has_optimizer:
            return
        if self._goal == "until-exit":
            self._recording.note("server-runs", "the script is a server: the report covers the requests until it was ended")
            return
        self._listening.append(server)
        # SGLang's sends itself a first request, and reports then.
        if "sglang" not in sys.modules:
            self.are_ready()

    @property
    def are_awaited(self) -> bool:
        """Whether they are ended once they are ready."""
        return bool(self._listening) and self._goal != "until-exit"

    def are_ready(self, tokens: int | None = None) -> None:
        """Ends those that listen: nothing is to come but requests. They were sent so many tokens."""
        for server in self._listening if self.are_awaited else ():
            if any(name in sys.modules for name in _ENGINES):
                sent = "before the first request" if tokens is None else f"after a request of {tokens:,} tokens that plimsoll sent to it"
                text = "the server was ready, and plimsoll stopped it %s; `--until-exit` lets it run until you interrupt it" % sent
                self._recording.note("server-ready", text)
            elif self._torch.cuda.is_initialized():
                text = "the server was ready, and plimsoll stopped it before the first request, whose memory is not counted: send some with `--until-exit`, and end it with Ctrl-C"
                self._recording.note("server-without-requests", text)
            else:
                continue
            server.should_exit = True


@guarded
def wait_for(processes: Any) -> None:
    """Until they have ended, or do nothing."""
    begun = since = time.monotonic()
    before = -1
    while alive := [it for it in processes if it.is_alive()]:
        work, now = sum(_work(it.pid) for it in alive), time.monotonic()
        if work != before:
            before, since = work, now
        elif since + FAREWELL < now or begun + _LONGEST_FAREWELL < now:
            return
        alive[0].join(0.2)


def _work(process: int) -> int:
    """How long it has computed until now, and those that it started: in ticks of the system."""
    folder = Path("/proc") / str(process)
    try:
        times = (folder / "stat").read_text().rpartition(")")[2].split()[11:13]
        children = [int(it) for task in (folder / "task").iterdir() for it in (task / "children").read_text().split()]
    except OSError:
        return 0
    return sum(map(int, times)) + sum(map(_work, children))
