"""`record`: records the GPU memory of this process, for `plimsoll explain` and `plimsoll view`."""

from __future__ import annotations

import atexit
import json
import os
import secrets
import sys
import tempfile
import time
import warnings
import zipfile
from pathlib import Path
from types import TracebackType
from typing import Any

from plimsoll import _binary
from plimsoll._agent import agent
from plimsoll._binary import PlimsollError

_FORMAT = 1


class Recorder:
    """Records from `start` to `stop`; also a context manager."""

    def __init__(self, path: str | os.PathLike[str], *, events: int = 200_000) -> None:
        """Use `record`, which makes these."""
        self.path = Path(path)
        self._events = events
        self._agent: Any = None
        self._began = 0.0

    def start(self) -> Recorder:
        """Starts the recorder. Blocks that were allocated before are in the recording without their history."""
        if not self.path.parent.is_dir():
            raise PlimsollError(f"cannot write {self.path}: there is no folder {self.path.parent}")
        self._agent = agent(self._events, asleep=False)
        self._agent.record_all()
        self._began = time.time()
        atexit.register(self.stop)
        return self

    def stop(self) -> Path | None:
        """Writes the recording; the path, or None if it was written already or the GPU was not used.

        A recording that cannot be written is a warning: training has come to its end, and its results come first.
        """
        recording, self._agent = self._agent, None
        atexit.unregister(self.stop)
        if recording is None:
            return None
        try:
            with tempfile.TemporaryDirectory(prefix="plimsoll-") as folder:
                if not recording.keep(folder):
                    return None
                self._write(Path(folder))
        except Exception as error:
            warnings.warn(f"plimsoll could not write the recording {self.path}: {error}", stacklevel=2)
            return None
        return self.path

    def _write(self, folder: Path) -> None:
        manifest = {
            "format": _FORMAT,
            "plimsoll": _binary.version(),
            "mode": "run",
            "command": list(getattr(sys, "orig_argv", sys.argv)),
            "exit_code": None,
            "signal": None,
            "seconds": round(time.time() - self._began, 6),
        }
        # A unique name.
        part = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
        try:
            with zipfile.ZipFile(part, "x", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr("manifest.json", json.dumps(manifest, indent=2))
                for file in sorted(it for it in folder.rglob("*") if it.is_file()):
                    archive.write(file, file.relative_to(folder))
            os.replace(part, self.path)
        finally:
            part.unlink(missing_ok=True)

    def __enter__(self) -> Recorder:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        recording = self._agent
        if recording is not None:
            recording.saw(error)
        self.stop()
        if recording is not None:
            recording.saw(None)


def record(path: str | os.PathLike[str], *, events: int = 200_000) -> Recorder:
    """Records what the block does with GPU memory, into the zip file `path`.

        with plimsoll.record("run.zip"):
            train()

    The recording is also written when the block raises, as it does when memory runs out. It has stacks, steps, phases
    and names of tensors; training is not changed. Start it before the model is built, or what it is made of has no
    history. The recorder stays on for the rest of the process: a later block holds what went before it, too.

    Args:
        path: the file; it appears when the block ends.
        events: how many of the last allocations and frees the recording has.
    """
    return Recorder(path, events=events)
