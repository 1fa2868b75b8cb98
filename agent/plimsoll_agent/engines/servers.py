"""Servers of this process: one that is ready has shown that, and is asked to end, because it never does by itself. Its engine's processes get the time
to write what they used."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.after_import import after_import
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Function, Torch
    from plimsoll_agent.run.recording import Recording
    from plimsoll_agent.run.training_steps import Steps

FAREWELL = 30.0
"""Seconds, at most, in which the processes of an engine end. vLLM gives the ranks of one engine 5."""
_ENGINES = ("vllm", "sglang")
"""Who has imported one and starts uvicorn, serves it: with the engine's own server, which may be `__main__`, or with one of the user's. Others serve
a model that they hold themselves, if they have used the GPU by then."""


class Servers:
    """Those that listen; `goal` is where the run ends, as `settings` has it."""

    def __init__(self, torch: Torch, recording: Recording, goal: str, steps: Steps) -> None:
        self._torch, self._recording, self._goal, self._steps = torch, recording, goal, steps
        self._listening: list[Any] = []

    def install(self) -> None:
        """Sees each server of uvicorn."""
        after_import("uvicorn.server", lambda module: patch.replace(module.Server, "startup", self._startup))

    def _startup(self, real: Function) -> Function:
        async def startup(server: Any, *args: Any, **kwargs: Any) -> None:
            await real(server, *args, **kwargs)
            self._listens(server)

        return startup

    @guarded
    def _listens(self, server: Any) -> None:
        # A training may have a server beside it that shows how it goes.
        if server.should_exit or self._steps.has_optimizer:
            return
        if self._goal == "until-exit":
            self._recording.note("server-runs", "the script is a server: the report covers the requests until it was ended")
            return
        self._listening.append(server)
        # SGLang's sends itself a first request, and reports then.
        if "sglang" not in sys.modules:
            self.are_ready()

    def are_ready(self) -> None:
        """Ends those that listen: nothing is to come but requests."""
        for server in self._listening if self._goal != "until-exit" else ():
            if any(name in sys.modules for name in _ENGINES):
                text = "the server was ready, and plimsoll stopped it before the first request; `--until-exit` lets it run until you interrupt it"
                self._recording.note("server-ready", text)
            elif self._torch.cuda.is_initialized():
                text = "the server was ready, and plimsoll stopped it before the first request, whose memory is not counted: send some with `--until-exit`, and end it with Ctrl-C"
                self._recording.note("server-without-requests", text)
            else:
                continue
            server.should_exit = True


@guarded
def wait_for(processes: Any) -> None:
    """Until they have ended, or have had their time."""
    until = time.monotonic() + FAREWELL
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
