"""`plimsoll top` on machines with phantom GPUs, in a terminal and without one."""

import fcntl
import json
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import termios
import time

import pytest
from described import assert_described
from harness import binary
from scene import GIB, busy


def top(machine, *options, **more):
    return subprocess.run([binary(), "top", *options], env=machine.environment(), capture_output=True, text=True, **more)


def told(machine, *options):
    ran = top(machine, "--json", *options)
    document = json.loads(ran.stdout)
    assert_described("top", document)
    return ran.returncode, document


def test_what_the_driver_and_the_process_say_comes_together(machine):
    it = machine(2)
    first, second = it.uuids(binary())
    watched = it.process({1: 20 * GIB})
    it.status(watched, devices=[it.counters(second, 12 * GIB, 15 * GIB, growth_per_step=1 << 30)], expected_peak=16 * GIB)
    alone = it.process({0: 3 * GIB, 1: 5 * GIB})
    code, document = told(it)
    assert (code, document["no_gpu"], document["notes"]) == (0, None, [])
    assert [d["used_bytes"] // GIB for d in document["devices"]] == [3, 25]
    by_pid = {p["pid"]: p for p in document["processes"]}
    assert set(by_pid) == {watched, alone}
    assert by_pid[alone]["name"] == "sleep" and by_pid[alone]["watched"] is None
    assert [(d["gpu"], d["held_bytes"], d["allocator"]) for d in by_pid[alone]["devices"]] == [(0, 3 * GIB, None), (1, 5 * GIB, None)]
    (on,) = by_pid[watched]["devices"]
    assert (on["gpu"], on["held_bytes"], on["allocator"]["reserved_bytes"]) == (1, 20 * GIB, 15 * GIB)
    assert on["room_bytes"] == document["devices"][1]["free_bytes"] + 3 * GIB
    assert on["steps_to_end"] == on["room_bytes"] // GIB
    assert on["seconds_to_end"] == pytest.approx(on["room_bytes"] / GIB * 0.21)


def test_without_a_gpu_it_says_so_and_shows_the_runs(machine):
    it = machine(0)
    ran = top(it)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        "plimsoll: no NVIDIA GPU and no plimsoll run here: NVIDIA's driver is not installed (libnvidia-ml.so.1 is not found)\n"
    )
    assert told(it)[0] == 2
    it.status(it.process({}), devices=[it.counters(None, 1 * GIB, 2 * GIB)])
    ran = top(it)
    assert ran.returncode == 0 and "no NVIDIA GPU here: NVIDIA's driver" in ran.stdout and "train.py" in ran.stdout
    assert told(it)[0] == 0


def test_a_status_of_a_process_that_ended_goes(machine):
    it = machine(0)
    pid = it.process({})
    path = it.status(pid)
    assert [p["pid"] for p in told(it)[1]["processes"]] == [pid]
    it.end()
    assert told(it)[1]["processes"] == []
    # In a container a process that lives looks as if it had ended, so what is new stays.
    assert path.exists()
    os.utime(path, (0, 0))
    assert told(it)[1]["processes"] == []
    assert not path.exists()


def test_eight_devices_and_forty_processes(machine):
    it = machine(8)
    busy(it, binary(), 8, 40)
    _, document = told(it)
    assert len(document["devices"]) == 8 and len(document["processes"]) == 40
    text = top(it, "--once", "--sort", "end", "--filter", "train").stdout
    rows = [line for line in text.splitlines() if "train" in line]
    assert len(rows) == 20
    # Growing most; then less; those that do not grow; those that do not know it yet.
    ends = [("+200M" in row, "+3.0M" in row, "steady" in row) for row in rows]
    assert ends == sorted(ends, reverse=True)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_root_sees_the_runs_of_others_and_others_only_their_own(machine, tmp_path):
    it = machine(0)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    for folder in (tmp_path, *list(tmp_path.parents)[:-2]):
        folder.chmod(folder.stat().st_mode | 0o011)
    pids = {}
    for uid in (0, 4242, 4243):
        folder = shared / f"plimsoll-{uid}" / "running"
        folder.mkdir(parents=True)
        process = subprocess.Popen(["sleep", "600"], user=uid)
        it.processes.append(process)
        it.running = folder
        it.status(process.pid, label=f"of-{uid}.py")
        pids[uid] = process.pid
        # What a user says of somebody else's process counts for nothing.
        it.status(os.getppid(), label="pretended.py")
        for path in (folder, folder.parent, *folder.iterdir()):
            os.chown(path, uid, uid)
        for path in (folder, folder.parent):
            path.chmod(0o700)

    def seen(uid):
        environment = it.environment(TMPDIR=str(shared), XDG_RUNTIME_DIR=str(shared))
        del environment["PLIMSOLL_RUNNING"]
        ran = subprocess.run([shutil.copy(binary(), shared), "top", "--json"], env=environment, capture_output=True, text=True, user=uid, cwd="/")
        return {p["pid"]: p["watched"]["label"] for p in json.loads(ran.stdout)["processes"]}

    own = {pids[uid]: f"of-{uid}.py" for uid in pids}
    assert seen(4242) == {pids[4242]: "of-4242.py"}
    as_root = seen(0)
    assert as_root.pop(os.getppid()) == "pretended.py", "root may"
    assert as_root == own


class Terminal:
    """`plimsoll top` with a terminal of its own."""

    def __init__(self, environment, *options, size=(24, 80)):
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.process = subprocess.Popen(
            [binary(), "top", *options], env=environment | {"TERM": "xterm-256color"}, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        self.seen = b""

    def until(self, text, seconds=20):
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if select.select([self.ours], [], [], 0.2)[0]:
                self.seen += os.read(self.ours, 65536)

    def end(self):
        """How it ended, and that the terminal is as it was."""
        code = self.process.wait(20)
        self.until(b"\x1b[?1049l")
        assert termios.tcgetattr(self.theirs) == self.before
        os.close(self.ours)
        os.close(self.theirs)
        return code


@pytest.mark.parametrize("way", ["q", "ctrl-c", "sigterm", "sighup"])
def test_the_terminal_is_as_it_was_afterwards(machine, way):
    it = machine(1)
    it.process({0: GIB})
    terminal = Terminal(it.environment(), "--interval", "0.2")
    terminal.until(b"sleep")
    assert termios.tcgetattr(terminal.theirs) != terminal.before
    if way == "q":
        os.write(terminal.ours, b"q")
    elif way == "ctrl-c":
        os.write(terminal.ours, b"\x03")
    else:
        terminal.process.send_signal(signal.Signals[way.upper()])
    assert terminal.end() == 0


def test_a_terminal_that_goes_away_ends_it(machine):
    it = machine(1)
    terminal = Terminal(it.environment(), "--interval", "0.2")
    terminal.until(b"GPU")
    os.close(terminal.theirs)
    os.close(terminal.ours)
    try:
        assert terminal.process.wait(20) == 2
    finally:
        terminal.process.kill()


def test_the_page_follows_the_machine_and_obeys_keys(machine):
    it = machine(1)
    it.process({0: GIB})
    terminal = Terminal(it.environment(NO_COLOR="1"), "--interval", "0.2")
    terminal.until(b"sleep")
    it.status(it.process({0: 2 * GIB}), label="late.py")
    terminal.until(b"late.py")
    assert b"\x1b[38" not in terminal.seen
    os.write(terminal.ours, b"?")
    terminal.until(b"tensors")
    os.write(terminal.ours, b"?/nobody\r")
    terminal.until(b"nobody")
    os.write(terminal.ours, b"q")
    assert terminal.end() == 0
