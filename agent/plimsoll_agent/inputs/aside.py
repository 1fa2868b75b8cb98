"""Asks a script's data where nothing of the script can notice: in a forked child, whose memory is a copy.

There random states, caches and counters of the script change for nobody. What would be seen outside (a file that is written, a
connection, a process) the child does not do: Python's audit hook refuses it, and the look ends there. It prints nowhere, and takes a
bounded time and bounded memory. A data set that uses the device cannot be asked in a child.
"""

from __future__ import annotations

import json
import os
import posix
import select
import signal
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plimsoll_agent.kinds import Torch

MOST_MEMORY = 4 << 30
"""Bytes that the child may take more than it has."""

FORBIDDEN = {
    "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown", "os.utime",
    "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.kill", "os.killpg", "subprocess.Popen", "pty.spawn",
    "socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "shutil.rmtree", "shutil.move", "shutil.copyfile",
}
"""What is seen outside of a process, as Python's audit events name it; and `open` for writing."""


def ask(torch: Torch, work: Callable[[Callable[[Any], object]], object], seconds: float) -> Any:
    """What `work(tell)` told last in the child, as JSON; None if that was nothing. `work` may tell more and more: the child is ended after
    `seconds`."""
    if not hasattr(os, "fork"):
        return None
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of threads, of which the child needs none.
        pid = os.fork()
    if pid == 0:
        try:
            os.close(ours)
            _in_the_child(torch, work, theirs)
        finally:
            posix._exit(0)
    os.close(theirs)
    try:
        answer = _last_line(ours, seconds)
    finally:
        os.close(ours)
        posix.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return json.loads(answer) if answer else None


def spread(n: int) -> Iterator[int]:
    """0 to n - 1, far apart at first."""
    step = 1
    while step * step < n:
        step *= 2
    for first in range(min(step, n)):
        yield from range(first, n, step)


def _last_line(file: int, seconds: float) -> bytes:
    until, pieces = time.monotonic() + seconds, [b""]
    while select.select([file], [], [], max(0.0, until - time.monotonic()))[0]:
        piece = os.read(file, 1 << 16)
        if not piece:
            break
        pieces.append(piece)
    return b"".join(pieces).rpartition(b"\n")[0].rpartition(b"\n")[2]


def _in_the_child(torch: Torch, work: Callable[[Callable[[Any], object]], object], writing: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    _limit_memory()
    torch.set_num_threads(1)  # Threads of OpenMP do not outlive a fork.
    # From here on nothing is done that others could see.
    sys.addaudithook(_refuse)

    def tell(found: Any) -> None:
        text = (json.dumps(found) + "\n").encode()
        while text:
            text = text[os.write(writing, text) :]

    work(tell)


def _limit_memory() -> None:
    import resource

    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MOST_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    writes = event == "open" and (set(str(args[1] or "r")) & set("wax+") or (isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)))
    if writes or event in FORBIDDEN:
        raise PermissionError("plimsoll only looks at a sample: %s would be seen outside" % event)
