"""The host memory (RAM) of this process, at the ends of steps and at its end.

Its own pages are read at each end of a step: one small file of the kernel's, some microseconds. Those of DataLoader's workers
are read at steps 1, 2, 4, 8, ...: a forked worker shares the pages of its parent, and only what it changed is its own, which
the kernel counts page by page.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plimsoll_agent.kinds import Torch

PAGE = os.sysconf("SC_PAGE_SIZE")
MOST_WORKERS = 32
"""So many are read; of more, these are taken for all."""


def own() -> int | None:
    """Bytes of RAM that belong to this process alone, files and what is shared left out; None where the kernel does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            fields = file.read().split()
        return (int(fields[1]) - int(fields[2])) * PAGE
    except (OSError, IndexError, ValueError):
        return None


def workers() -> int | None:
    """Bytes of RAM that its children have changed or made themselves; None without children of `multiprocessing`."""
    module = sys.modules.get("multiprocessing.process")
    pids = [child.pid for child in list(getattr(module, "_children", ())) if child.pid]
    found = [it for it in map(_private, pids[:MOST_WORKERS]) if it is not None]
    return sum(found) * len(pids) // len(found) if found else None


def worked() -> float:
    """Seconds of processor time of this process and of all below it, those that ended included."""
    ticks, parents = {}, {}
    for name in os.listdir("/proc"):
        try:
            with open("/proc/%d/stat" % int(name), "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            parents[int(name)] = int(fields[1])
            ticks[int(name)] = sum(map(int, fields[11:15]))
        except (OSError, ValueError, IndexError):
            pass
    found: set[int] = set()
    below = {os.getpid()}
    while below:
        found |= below
        below = {pid for pid, parent in parents.items() if parent in below} - found
    return sum(ticks.get(pid, 0) for pid in found) / os.sysconf("SC_CLK_TCK")


def free_memory() -> int | None:
    """Bytes of RAM that programs can still take; None where the kernel does not say."""
    return _kib("/proc/meminfo", ("MemAvailable",)).get("MemAvailable")


def _private(pid: int) -> int | None:
    kib = 0
    try:
        with open("/proc/%d/smaps_rollup" % pid, "rb") as file:
            for line in file:
                if line.startswith((b"Private_Dirty:", b"Swap:")):
                    kib += int(line.split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return kib << 10


def at_step(step: int) -> dict[str, int | None]:
    """For the mark of a step's end."""
    res = {"host": own()}
    if step & (step - 1) == 0:
        res["workers"] = workers()
    return res


def room() -> dict[str, int | None]:
    """What there is: the machine's memory or the container's limit, and /dev/shm."""
    res = {"total": _limit()}
    try:
        shm = os.statvfs("/dev/shm")
        res["shm"] = shm.f_blocks * shm.f_frsize
    except OSError:
        res["shm"] = None
    return res


def in_the_end(torch: Torch) -> dict[str, int | None]:
    """What the process had at most, what of it is in the swap file, and what it pinned."""
    lines = _kib("/proc/self/status", ("VmHWM", "VmSwap"))
    return dict(room(), peak=lines.get("VmHWM"), swapped=lines.get("VmSwap"), pinned=_pinned(torch))


def _pinned(torch: Torch) -> int | None:
    # Since torch 2.7.
    stats = getattr(torch._C, "_cuda_hostMemoryStats", None)
    try:
        return int(stats()["allocated_bytes"]["peak"]) if stats is not None else None
    except (KeyError, TypeError, ValueError, RuntimeError):
        return None


def _limit() -> int | None:
    total = _kib("/proc/meminfo", ("MemTotal",)).get("MemTotal")
    limits = [total] if total else []
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(file, encoding="ascii") as text:
                limits.append(int(text.read()))
        except (OSError, ValueError):
            pass
    return min(limits) if limits else None


def _kib(file: str, names: Sequence[str]) -> dict[str, int]:
    """The lines `Name:  123 kB` of a file of the kernel's, in bytes."""
    res = {}
    try:
        with open(file, encoding="ascii", errors="replace") as text:
            for line in text:
                name, _, value = line.partition(":")
                if name in names:
                    res[name] = int(value.split()[0]) << 10
    except (OSError, IndexError, ValueError):
        pass
    return res
