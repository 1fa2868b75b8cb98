"""A world of some hundred files with everything that a file system keeps of them, and a picture of it: what `operations.py` is tried in."""

import contextlib
import ctypes
import fcntl
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
from pathlib import Path

import operations
from harness import COLD, ROOT, binary, clean_environment

NOBODY = 65534
SYSTEM_V = ("shm", "sem", "msg")
OURS = Path(".cache/plimsoll")
"""Below the home: what plimsoll keeps there is its own, and no part of the picture."""


class World:
    """A home with a project in it, in a folder with a name that nothing else has."""

    def __init__(self, folder, user=None):
        self.user = user
        self.mark = f"plimsoll-world-{random.getrandbits(48):012x}"
        self.folder = Path(folder, self.mark)
        self.home = self.folder / "home"
        self.project = self.home / "project"
        self.answers = Path(folder, "answers")
        """Where a command may write what it was asked to write."""
        self.key = random.randrange(1 << 20, 1 << 30)
        self._sockets = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sockets.bind(("127.0.0.1", 0))
        self._sockets.setblocking(False)
        self._make()

    def _make(self):
        self.project.mkdir(parents=True)
        self.answers.mkdir(exist_ok=True)
        for name, text in {".bashrc": "alias ll='ls -l'\n", ".cache/pip/wheel": "wheel", ".config/a": "a", "weights.pt": "months"}.items():
            self._write(self.home / name, text.encode())
        (self.folder / "outside").mkdir()
        (self.folder / "tmp").mkdir()
        for name in operations.OPERATIONS:
            self._make_one(self.project / "tried" / name, name)
        shutil.copy(operations.__file__, self.project / "train.py")
        program = self.folder / "program"
        built = shutil.which("gcc") and subprocess.run(["gcc", "-static", "-o", program, Path(__file__).with_name("program.c")], capture_output=True)
        self.program = program if built and built.returncode == 0 else None
        if self.user is not None:
            subprocess.run(["chown", "-hR", f"{self.user}:{self.user}", self.folder, self.answers], check=True)
        elif os.geteuid() == 0:
            os.chown(self.home / ".config/a", 1000, 1000)
            os.chmod(self.home / ".config/a", 0o640)

    def _write(self, path, data):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def _make_one(self, folder, name):
        """What an operation finds. Each file has contents of its own."""
        for file, size in (("a", 16384), ("b", 30), ("d/x", 3)):
            self._write(folder / file, (f"{name}/{file} was here\n".encode() * 1000)[:size])
        (folder / "empty").mkdir()
        (folder / "link").symlink_to("a")
        if name == "out-of-the-project":
            self._write(self.folder / "outside/far", b"far")
            (folder / "out").symlink_to("../../../../outside")
        if name == "hard-linked":
            os.link(folder / "a", folder / "twin")
        if name == "existing-pipe":
            os.mkfifo(folder / "fifo")
        if name == "attributes":
            with contextlib.suppress(OSError):
                os.setxattr(folder / "a", "user.old", b"1")
        if name.startswith("sqlite"):
            with contextlib.closing(sqlite3.connect(folder / "db")) as connection:
                connection.execute("create table t (x)")
                connection.execute("insert into t values (1)")
                connection.commit()
        if name == "git" and shutil.which("git"):
            who = ["-c", "user.name=n", "-c", "user.email=e@x"]
            for words in (["init", "-q", "--template="], ["add", "a", "b"], [*who, "commit", "-qm", "first"]):
                subprocess.run(["git", *words], cwd=folder, check=True)

    @contextlib.contextmanager
    def given(self, torch=False, without=()):
        """What the script is told, with descriptors and a neighbour that it may try; yields (environment, what `Popen` takes)."""
        tried = self.project / "tried"
        fds = {
            "folder": os.open(tried / "inherited-folder", os.O_RDONLY),
            "file": os.open(tried / "inherited-file/a", os.O_RDONLY),
        }
        held = {
            "held": os.open(tried / "neighbours-descriptor/a", os.O_RDWR),
            "held_for_taking": os.open(tried / "neighbours-descriptor-taken/a", os.O_RDWR),
        }
        stdin = os.open(tried / "standard-input/a", os.O_RDONLY)
        inherited = {name: (fd, os.fstat(fd).st_ino) for name, fd in (*fds.items(), ("stdin", stdin))}
        inherited["stdin"] = (0, inherited["stdin"][1])
        # A process of the same user that is no part of the run.
        words = ["sleep", "600"]
        neighbour = subprocess.Popen(words, pass_fds=list(held.values()), cwd=self.home, **self.identity())
        try:
            told = {
                "port": self._sockets.getsockname()[1],
                "mark": self.mark,
                "folder": str(self.folder),
                "home": str(self.home),
                "pid": neighbour.pid,
                "inherited": inherited,
                "static": self.program and str(self.program),
                "key": self.key,
                "torch": torch,
                "without": without,
                **held,
            }
            environment = clean_environment() | {
                "WORLD": json.dumps(told),
                "HOME": str(self.home),
                "TMPDIR": str(self.folder / "tmp"),
                "PLIMSOLL_BIN": binary(),
                "PYTHONPATH": str(ROOT / "python"),
                "PYTHONDONTWRITEBYTECODE": "1",
            }
            for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
                environment.pop(name, None)
            yield environment, dict(stdin=stdin, pass_fds=list(fds.values()), cwd=self.project, **self.identity())
        finally:
            neighbour.kill()
            neighbour.wait()
            for it in (*fds.values(), *held.values(), stdin):
                os.close(it)

    def identity(self):
        return {} if self.user is None else {"user": self.user, "group": self.user, "extra_groups": []}

    def said(self):
        """What each operation said of itself; of one that was run several times, the last."""
        res = {}
        with contextlib.suppress(BlockingIOError):
            while True:
                name, text = json.loads(self._sockets.recv(65536))
                res[name] = text
        return res

    def picture(self):
        """Every entry, and all that is kept of it but the time of the last look; and what this world has outside of files."""
        res = {}
        for folder, folders, files in os.walk(self.folder):
            if Path(folder) == self.home / OURS.parent and OURS.name in folders:
                folders.remove(OURS.name)
            for name in ["", *files, *(it for it in folders if os.path.islink(os.path.join(folder, it)))]:
                path = os.path.join(folder, name) if name else folder
                res[os.path.relpath(path, self.folder)] = _look(path, Path(path) in (self.home / OURS.parent, self.folder / "tmp"))
        return res | dict.fromkeys(self.beside(), "is there")

    def keep_something(self):
        """A file among plimsoll's own that no run may touch."""
        path = self.home / OURS / "of-another-run"
        path.write_text("kept")
        if self.user is not None:
            os.chown(path, self.user, self.user)

    def ours(self):
        """What plimsoll keeps from run to run: code that a real run loads, and downloads. Not the bytecode of packages, which runs on the phantom add to."""
        res = {}
        for folder, folders, files in os.walk(self.home / OURS):
            folders[:] = [it for it in folders if it not in ("sessions", "layers", "bytecode")]
            for name in files:
                path = Path(folder, name)
                res[str(path.relative_to(self.folder))] = {"contents": hashlib.sha256(path.read_bytes()).hexdigest()}
        return res

    def beside(self):
        """What bears our mark outside of the world: files, objects of the kernel, processes."""
        for folder in ("/tmp", "/var/tmp", "/dev/shm"):
            names = os.listdir(folder) if os.path.isdir(folder) else []
            yield from (os.path.join(folder, it) for it in names if self.mark in it and os.path.join(folder, it) != str(self.folder))
        for kind in SYSTEM_V:
            path = Path("/proc/sysvipc", kind)
            lines = path.read_text().splitlines()[1:] if path.exists() else []
            yield from (f"System V {kind}" for it in lines if it.split()[0] == str(self.key))
        queue = ctypes.CDLL(None, use_errno=True).mq_open(f"/{self.mark}-queue".encode(), os.O_RDONLY)
        if queue >= 0:
            os.close(queue)
            yield "a message queue"
        with contextlib.suppress(operations.Absent):
            if os.path.exists(os.path.join(operations._control_groups(), self.mark)):
                yield "a control group"
        yield from (f"process {it}" for it in self.processes())

    def processes(self):
        """Those that the script started: they have the world in their environment."""
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f'"mark": "{self.mark}"'.encode() in (folder / "environ").read_bytes() and "Z" not in _state(folder):
                    yield folder.name

    def clear(self):
        """Takes away what a run left behind, so that the machine is as it was whatever the test says."""
        for it in self.processes():
            with contextlib.suppress(OSError):
                os.kill(int(it), signal.SIGKILL)
        libc = ctypes.CDLL(None)
        for kind, get, control in (("shm", "shmget", "shmctl"), ("sem", "semget", "semctl"), ("msg", "msgget", "msgctl")):
            arguments = (0, 0) if kind != "msg" else (0,)
            found = getattr(libc, get)(self.key, *arguments)
            if found >= 0:
                getattr(libc, control)(found, 0, *((0, None) if kind == "sem" else (None,)))  # IPC_RMID
        libc.mq_unlink(f"/{self.mark}-queue".encode())
        with contextlib.suppress(operations.Absent, OSError):
            os.rmdir(os.path.join(operations._control_groups(), self.mark))
        for folder in ("/tmp", "/var/tmp", "/dev/shm"):
            for path in Path(folder).glob(f"*{self.mark}*"):
                if path != self.folder:
                    path.unlink()
        self._sockets.close()


def _state(folder):
    return (folder / "stat").read_text().rpartition(")")[2].split()[0]


def _look(path, is_passed_through):
    """Of a folder in which plimsoll makes its own, what changes with that is left out."""
    it = os.lstat(path)
    res = {"mode": oct(it.st_mode), "owner": (it.st_uid, it.st_gid), "inode": it.st_ino, "device": it.st_rdev}
    if not is_passed_through:
        res |= {"links": it.st_nlink, "size": it.st_size, "blocks": it.st_blocks, "changed": it.st_mtime_ns, "touched": it.st_ctime_ns}
    with contextlib.suppress(OSError):
        res["attributes"] = {name: os.getxattr(path, name, follow_symlinks=False) for name in os.listxattr(path, follow_symlinks=False)}
    if stat.S_ISLNK(it.st_mode):
        res["target"] = os.readlink(path)
    elif stat.S_ISREG(it.st_mode) and it.st_size < 1 << 24:
        res["contents"] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    if stat.S_ISREG(it.st_mode) or stat.S_ISDIR(it.st_mode):
        fd = os.open(path, os.O_RDONLY | os.O_NOATIME)
        for name, number in (("flags", 0x80086601), ("version", 0x80087601)):
            with contextlib.suppress(OSError):
                res[name] = bytes(fcntl.ioctl(fd, number, bytes(8)))[:4]
        os.close(fd)
    return res


def differences(before, after):
    """Sentences, in the order of the names."""
    res = []
    for path in sorted(before.keys() | after.keys()):
        if path not in after:
            res.append(f"{path} is gone")
        elif path not in before:
            res.append(f"{path} was made" if after[path] != "is there" else f"{path} is there")
        elif before[path] != after[path]:
            what = [key for key in before[path] if before[path][key] != after[path].get(key)]
            res.append(f"{path} has another {', '.join(what)}")
    return res


def pythons(user):
    """The Python for scripts without torch: one that this user may run."""
    for it in (COLD, "/usr/bin/python3"):
        options = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        with contextlib.suppress(OSError):
            if subprocess.run([it, "-c", ""], cwd="/", **options).returncode == 0:
                return it
    return None
