"""Takes its places in a serving engine, whichever the program imports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plimsoll_agent.engines import sglang, vllm
from plimsoll_agent.engines.servers import Servers

if TYPE_CHECKING:
    from plimsoll_agent.engines.asked import Asked, Program
    from plimsoll_agent.kinds import Torch
    from plimsoll_agent.run.recording import Recording


def install(torch: Torch, recording: Recording, goal: str, asked: Asked, program: Program) -> None:
    """`goal` is where the run ends, as `settings` has it."""
    servers = Servers(torch, recording, goal, program)
    servers.install()
    vllm.install(recording, asked, program)
    sglang.install(recording, asked, program, servers)
