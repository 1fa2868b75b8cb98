"""The age of this process, whether it is a child of Python's multiprocessing, and how such a child ends."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def is_a_worker() -> bool:
    """Whether this process is a child of Python's multiprocessing, such as a DataLoader worker."""
    if "--multiprocessing-fork" in sys.argv:
        return True
    process = sys.modules.get("multiprocessing.process")
    if process is None:
        return False
    # A spawned child imports the main script, and torch with it, before it knows its parent.
    return process.parent_process() is not None or getattr(process.current_process(), "_inheriting", False)


def at_its_end(act: Callable[[], object]) -> None:
    """`act()` at the end of a forked child: multiprocessing ends it with `os._exit`, after its own finalizers."""
    from multiprocessing import util

    util.Finalize(None, act, exitpriority=-100)


def seconds_since_start() -> float | None:
    """Since this process began; None if the system does not say."""
    try:
        with open("/proc/self/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/uptime") as file:
            uptime = float(file.read().split()[0])
        return round(uptime - ticks / os.sysconf("SC_CLK_TCK"), 6)
    except (OSError, ValueError, IndexError):
        return None
