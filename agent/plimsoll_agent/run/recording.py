"""The file of notes that a process leaves: one JSON object a line, in the order things happened.

A line is written with one `write` call and never buffered, so a process that is killed leaves
whole lines, and a forked child inherits no half-written ones. The file appears with its first
line: a process that has nothing to say leaves nothing. Where it may not grow any further, its last line says so.

The session's folder is its owner's. It goes with a plimsoll that was killed, while a training on the machine's own device goes
on; nothing here makes it again.
"""

from __future__ import annotations

import collections
import json
import os
import shutil
import time

TYPE_CHECKING = False  # As typing has it, which is not imported for this.
if TYPE_CHECKING:
    from typing import Any

    from plimsoll_agent.kinds import Named


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
        self._ends: collections.deque[int] = collections.deque(maxlen=16)
        """Where the last lines end in the file."""
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
        data = _line(dict({"kind": kind}, **fields))
        try:
            if self._fd is None:
                self.make_folder()
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
                self._fd = os.open(os.path.join(self.folder, "agent.jsonl"), flags, 0o600)
            while data:
                data = data[os.write(self._fd, data) :]
            self._ends.append(os.fstat(self._fd).st_size)
        except OSError as error:
            self._broken = True
            self._say_that_it_is_cut(error)

    def make_folder(self) -> None:
        """The folder of this process in the session; an `OSError` if that is gone."""
        try:
            os.mkdir(self.folder, 0o700)
        except FileExistsError:
            pass

    def _say_that_it_is_cut(self, error: OSError) -> None:
        """Replaces the last lines, so that it fits."""
        if self._fd is None:
            return
        line = _line({"kind": "cut", "why": os.strerror(error.errno or 0)})
        try:
            size = os.fstat(self._fd).st_size
            begin = max([it for it in self._ends if it + len(line) <= size] or [0])
            os.ftruncate(self._fd, begin)
            os.write(self._fd, line)
        except OSError:
            pass

    def note(self, code: str, text: str) -> bool:
        """A sentence for people. The same one is written once; whether this is it."""
        is_first = (code, text) not in self._notes
        if is_first:
            self._notes.add((code, text))
            self.write("note", code=code, text=text)
        return is_first

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
        os.mkdir(folder, 0o700)
        os.mkdir(copy.folder, 0o700)
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
        """For the program that started the run: from now on this process should end."""
        self._leave("asked-to-stop")

    def has_failed(self) -> None:
        """For the program that started the run: a part of it ended with an error, which other parts may not notice."""
        self._leave("failed")

    def serves(self) -> None:
        """For the program that started the run: a serving engine has the device, and its processes take long to end."""
        self._leave("serves")

    def _leave(self, name: str) -> None:
        try:
            open(os.path.join(self.session, name), "a").close()
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
        self.__init__(self.session)  # type: ignore[misc]  # This class has no subclasses.


def _line(fields: Named) -> bytes:
    line = json.dumps(fields, separators=(",", ":"), default=str) + "\n"
    return line.encode("utf-8", "backslashreplace")
