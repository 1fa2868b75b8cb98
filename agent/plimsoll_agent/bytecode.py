"""Stores the bytecode of installed packages, and of the agent, from run to run.

Python writes bytecode into the layer of the run, which plimsoll throws away. Where packages came without bytecode (uv
installs them so), each run and each trial would compile all of torch anew. So the agent also writes it into a folder of
plimsoll, which takes new files from there after the run, and reads it from there when a package has none. Python itself checks by time and length that a
file belongs to its source. The name of a file in this folder also has the change time (ctime) of the source, which no installer can set.

Also where the environment says PYTHONDONTWRITEBYTECODE, as it does in many containers: nothing is written beside anybody's sources, and to
compile torch takes more than half of the processor time of a small script.

Only packages and the agent: the agent does not store bytecode of the script's own files.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import marshal
import os
import struct

from plimsoll_agent import patch

TYPE_CHECKING = False  # As typing has it, which is not imported for this.
if TYPE_CHECKING:
    from typing import Any

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_INSTALLED = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)


def watch(folder: str) -> None:
    """From now on bytecode is stored in `folder`, and read from there. Called once, at start-up."""
    loader = importlib.machinery.SourceFileLoader
    of_disk, to_code = loader.get_data, loader.source_to_code

    # As each source was before it was read: what it becomes meanwhile is not what was compiled.
    before: dict[str, os.stat_result] = {}

    def get_data(self: Any, path: str) -> Any:
        try:
            if path == self.path:
                before[path] = os.stat(path)
            return of_disk(self, path)
        except OSError:
            data = _kept(folder, path)
            if data is None:
                raise
            return data

    def source_to_code(self: Any, data: Any, path: str, **how: Any) -> Any:
        code = to_code(self, data, path, **how)
        source = before.pop(path, None)
        if source is not None and not how:
            _keep(folder, path, source, code)
        return code

    patch.put(loader, "get_data", get_data)
    patch.put(loader, "source_to_code", source_to_code)


def _place(folder: str, path: str, source: os.stat_result) -> str | None:
    """Where the bytecode at `path` is stored; None if it is not stored."""
    is_one = path.startswith(_OWN) or any(it in path for it in _INSTALLED)
    if not path.endswith(".pyc") or not is_one or not os.path.isabs(path):
        return None
    above, name = os.path.split(path)
    return os.path.join(folder, above.lstrip(os.sep), f"{source.st_ctime_ns:x}-{name}")


def _kept(folder: str, path: str) -> Any:
    try:
        place = _place(folder, path, os.stat(importlib.util.source_from_cache(path)))
        if place is None:
            return None
        with open(place, "rb") as file:
            return file.read()
    except (OSError, ValueError):
        return None


def _keep(folder: str, path: str, source: os.stat_result, code: Any) -> None:
    try:
        place = _place(folder, importlib.util.cache_from_source(path), source)
        if place is None:
            return
        head = struct.pack("<4sIII", importlib.util.MAGIC_NUMBER, 0, int(source.st_mtime) & 0xFFFFFFFF, source.st_size & 0xFFFFFFFF)
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        new = f"{place}.{os.getpid()}"
        with open(new, "wb") as file:
            file.write(head + marshal.dumps(code))
        os.replace(new, place)
    except (OSError, ValueError, NotImplementedError):
        pass  # It will be compiled again.
