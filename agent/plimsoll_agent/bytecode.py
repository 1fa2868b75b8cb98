"""Stores the bytecode of installed packages, and of the agent, from run to run.

Python writes bytecode into the layer of the run, which plimsoll throws away. Where packages came without bytecode (uv
installs them so), or where Python is to write none (`PYTHONDONTWRITEBYTECODE`, as in many containers), each run and each trial would compile all of torch anew. So the agent also writes it into a folder of
plimsoll, which takes new files from there after the run, and reads it from there when a package has none. Python itself checks by time and length that a
file belongs to its source. The name of a file in this folder also has the change time (ctime) of the source, which no installer can set.

Only packages and the agent: the agent does not store bytecode of the script's own files.
"""

from __future__ import annotations

import importlib._bootstrap_external as external
import importlib.machinery
import importlib.util
import os
import sys

from plimsoll_agent import patch

TYPE_CHECKING = False  # As typing has it, which is not imported for this.
if TYPE_CHECKING:
    from typing import Any

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_INSTALLED = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)


def watch(folder: str) -> None:
    """From now on bytecode is stored in `folder`, and read from there. Called once, at start-up."""
    loader = importlib.machinery.SourceFileLoader
    of_disk, put_on_disk = loader.get_data, loader._cache_bytecode  # type: ignore[attr-defined]

    def get_data(self: Any, path: str) -> Any:
        try:
            return of_disk(self, path)
        except OSError:
            data = _kept(folder, path)
            if data is None:
                raise
            return data

    def cache_bytecode(self: Any, source: Any, path: str, data: Any) -> None:
        put_on_disk(self, source, path, data)
        _keep(folder, path, data)

    def source_to_code(self: Any, data: Any, path: str, *args: Any, **options: Any) -> Any:
        code = to_code(self, data, path, *args, **options)
        if sys.dont_write_bytecode:
            _keep_code(folder, path, data, code)
        return code

    to_code = loader.source_to_code
    patch.put(loader, "get_data", get_data)
    patch.put(loader, "_cache_bytecode", cache_bytecode)
    patch.put(loader, "source_to_code", source_to_code)


def _place(folder: str, path: str) -> str | None:
    """Where the bytecode at `path` is stored; None if it is not stored."""
    is_one = path.startswith(_OWN) or any(it in path for it in _INSTALLED)
    if not path.endswith(".pyc") or not is_one or not os.path.isabs(path):
        return None
    changed = os.stat(importlib.util.source_from_cache(path)).st_ctime_ns
    above, name = os.path.split(path)
    return os.path.join(folder, above.lstrip(os.sep), f"{changed:x}-{name}")


def _kept(folder: str, path: str) -> Any:
    try:
        place = _place(folder, path)
        if place is None:
            return None
        with open(place, "rb") as file:
            return file.read()
    except (OSError, ValueError):
        return None


def _keep_code(folder: str, path: str, source: Any, code: Any) -> None:
    """What Python would have written, had nobody told it to write nothing."""
    try:
        place = importlib.util.cache_from_source(path)
        data = external._code_to_timestamp_pyc(code, int(os.stat(path).st_mtime), len(source))  # type: ignore[attr-defined]
    except (OSError, ValueError, TypeError, NotImplementedError):
        return
    _keep(folder, place, data)


def _keep(folder: str, path: str, data: Any) -> None:
    try:
        place = _place(folder, path)
        if place is None:
            return
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        new = f"{place}.{os.getpid()}"
        with open(new, "wb") as file:
            file.write(data)
        os.replace(new, place)
    except (OSError, ValueError):
        pass  # It will be compiled again.
