"""The file in which other processes see this run: `plimsoll watch`, `plimsoll top`, exporters.

One file a process, `<pid>.json`, in a folder that only its user can read. It is written whole, and deleted with the
process. It has the time at which its process began, by which readers see that a file is stale.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
import tempfile
from typing import Any

from plimsoll_agent import settings

_BEGIN = b'{"format": 1, "pid": '
"""How every status file begins. The folder may be one of the user's, with other files whose names are numbers."""


def folder() -> str | None:
    """The folder of the files; None if other users can write there."""
    given = settings.running()
    runtime = settings.runtime_folder()
    if given:
        path = given
    elif runtime and _is_ours(runtime):
        path = os.path.join(runtime, "plimsoll", "running")
    else:
        path = os.path.join(tempfile.gettempdir(), "plimsoll-%d" % os.getuid(), "running")
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError:
        return None
    places = [path] if given else [path, os.path.dirname(path)]
    return path if all(_is_ours(it) for it in places) else None


def _is_ours(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


class Status:
    """The file of this process."""

    def __init__(self, label: str | None) -> None:
        self.pid = os.getpid()
        self._folder = folder()
        if self._folder is not None:
            path = os.path.join(self._folder, "%d.json" % self.pid)
            # A file of an earlier process with this number is replaced, too; that process may have been killed before it wrote anything.
            if _beginning(path) not in (None, _BEGIN) or _beginning(path + ".part") not in (None, _BEGIN, b""):
                self._folder = None
        self._same = {
            "format": 1,
            "pid": self.pid,
            "started": _started(),
            "label": label or _script(),
            "command": list(getattr(sys, "orig_argv", sys.argv)),
            "rank": settings.number("RANK"),
        }

    def write(self, **fields: Any) -> None:
        """Writes the whole of it; a disk that is full is no matter of training."""
        if self._folder is None or os.getpid() != self.pid:
            return
        path = os.path.join(self._folder, "%d.json" % self.pid)
        try:
            with open(path + ".part", "w", encoding="utf-8") as file:
                json.dump(dict(self._same, **fields), file, default=str)
            os.replace(path + ".part", path)
        except OSError:
            self.remove()

    def remove(self) -> None:
        """At the end of the process."""
        if self._folder is None or os.getpid() != self.pid:
            return
        path = os.path.join(self._folder, "%d.json" % self.pid)
        self._folder = None  # What comes later is not written any more.
        for it in (path, path + ".part"):
            with contextlib.suppress(OSError):
                os.unlink(it)


def _beginning(path: str) -> bytes | None:
    """None if nothing is there; no bytes of ours if it cannot be read, or is no file."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return file.read(len(_BEGIN))
    except FileNotFoundError:
        return None
    except OSError:
        return b"?"


def _started() -> int | None:
    try:
        with open("/proc/self/stat") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _script() -> str:
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.basename(main) if main else "python"
