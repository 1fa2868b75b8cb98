"""The file of notes that a process leaves: one JSON object a line, in the order things happened.

A line is written with one `write` call and never buffered, so a process that is killed leaves
whole lines, and a forked child inherits no half-written ones. The file appears with its first
line: a process that has nothing to say leaves nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import time

TYPE_CHECKING = False  # As typing has it, which is not imported for this.
if TYPE_CHECKING:
    from typing import Any


class Recording:
    """Where this process's notes go. Belongs to one process id; see `forked`."""

    seconds_imports: float
    """From the start of the process until torch and the agent were there."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.pid = os.getpid()
        self.began = time.time()
        self._fd: int | None = None
        self._broken = False
        self._notes: set[tuple[str, str]] = set()

    @property
    def folder(self) -> str:
        """`process-<pid>` of the session; the phantom writes there too."""
        return os.path.join(self.session, "process-%d" % self.pid)

    @property
    def is_open(self) -> bool:
        return self._fd is not None

    def write(self, kind: str, **fields: Any) -> None:
        """Appends one line. A full disk or a session that is gone ends the recording, not the run."""
        if self._broken or os.getpid() != self.pid:
            return
        line = json.dumps(dict({"kind": kind}, **fields), separators=(",", ":"), default=str) + "\n"
        data = line.encode("utf-8", "backslashreplace")
        try:
            if self._fd is None:
                os.makedirs(self.folder, mode=0o700, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
                self._fd = os.open(os.path.join(self.folder, "agent.jsonl"), flags, 0o600)
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            self._broken = True

    def note(self, code: str, text: str) -> None:
        """A sentence for people. The same one is written once."""
        if (code, text) not in self._notes:
            self._notes.add((code, text))
            self.write("note", code=code, text=text)

    def seconds(self) -> float:
        """Since the recording began."""
        return round(time.time() - self.began, 6)

    def copied_to(self, folder: str) -> Recording:
        """A recording of its own in the session `folder`, which goes on where this one is now."""
        copy = Recording(folder)
        copy.began, copy.seconds_imports = self.began, self.seconds_imports
        os.makedirs(copy.folder, mode=0o700)
        shutil.copyfile(os.path.join(self.folder, "agent.jsonl"), os.path.join(copy.folder, "agent.jsonl"))
        return copy

    def end_copied_to(self, folder: str, most: int) -> Recording:
        """A recording in the session `folder` of what this process is, and the last lines of this one: about `most` bytes."""
        copy = Recording(folder)
        copy.began = self.began
        os.makedirs(copy.folder, mode=0o700)
        with open(os.path.join(self.folder, "agent.jsonl"), "rb") as own:
            first = own.readline()
            end = own.seek(0, os.SEEK_END)
            own.seek(max(len(first), end - most))
            if own.tell() > len(first):
                own.readline()  # The rest of a line.
            last = own.read()
        with open(os.path.join(copy.folder, "agent.jsonl"), "wb") as file:
            file.write(first + last)
        return copy

    def was_asked_to_stop(self) -> None:
        """For whoever started the run: from now on it has no business but to end."""
        try:
            open(os.path.join(self.session, "asked-to-stop"), "a").close()
        except OSError:
            pass

    def withdraw(self) -> None:
        """This process had nothing to say after all: what it wrote so far goes."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
            os.unlink(os.path.join(self.folder, "agent.jsonl"))

    def forked(self) -> None:
        """In a forked child: forget the parent's file; a first line would open the child's own."""
        if self._fd is not None:
            try:
                os.close(self._fd)  # The child's copy of the descriptor; the parent keeps its own.
            except OSError:
                pass
        self.__init__(self.session)  # type: ignore[misc]  # Nobody makes a class of this one.
