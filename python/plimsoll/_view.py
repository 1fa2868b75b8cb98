"""`view`: recordings as a page to look at, in a notebook or as a file."""

from __future__ import annotations

import html
import os
import pickle
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union

from plimsoll import _binary
from plimsoll._binary import PlimsollError
from plimsoll._printable import printable
from plimsoll._record import Recorder

Source = Union[str, "os.PathLike[str]", Recorder, Mapping[str, Any]]


class View:
    """The page of `plimsoll view` with all of some recordings in it. A notebook shows it; `save` writes it."""

    def __init__(self, page: str, *, name: str, height: int) -> None:
        """Use `view`, which makes these."""
        self.page = page
        self._name = name
        self._height = height

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the page as one file that any browser opens, and returns where."""
        target = Path(path)
        target.write_text(self.page, encoding="utf-8")
        return target

    def _repr_html_(self) -> str:
        # In a frame without an origin of its own: a recording's page sees nothing of the notebook.
        return (
            f'<iframe sandbox="allow-scripts allow-forms allow-downloads" title="{html.escape(self._name)}" '
            f'style="width: 100%; height: {self._height}px; border: 1px solid #9aa4ad; border-radius: 6px" '
            f'srcdoc="{html.escape(self.page)}"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<plimsoll.View of {printable(self._name)}: a notebook shows it, save('page.html') writes it>"


def view(*recordings: Source, height: int = 760) -> View:
    """The recordings as a page: snapshots, recordings of plimsoll, what `record` wrote, or what
    `torch.cuda.memory._snapshot()` gives. The last line of a notebook's cell shows it."""
    if not recordings:
        raise PlimsollError("there is nothing to view; name a snapshot or a recording")
    with tempfile.TemporaryDirectory(prefix="plimsoll-") as folder:
        paths: list[str] = []
        for index, it in enumerate(recordings):
            if isinstance(it, Recorder):
                paths.append(str(it.path))
            elif isinstance(it, Mapping):
                path = Path(folder) / (f"snapshot-{index + 1}.pickle" if 1 < len(recordings) else "snapshot.pickle")
                path.write_bytes(pickle.dumps(dict(it), protocol=4))
                paths.append(str(path))
            else:
                paths.append(os.fspath(it))
        ran = _binary.run(["view", "--html", "-", "--", *paths])
        if not ran.stdout:
            raise PlimsollError(_binary.said(ran.stderr) or f"plimsoll view ended with exit code {ran.returncode}")
        return View(ran.stdout, name=", ".join(Path(it).name for it in paths), height=height)
