"""How the agent's tests run a script: on a phantom, in a process of its own.

    PLIMSOLL_PHANTOM_LIB      the phantom, a file called libcuda.so.1 (needed)
    PLIMSOLL_PHANTOM_PRELOAD  what to preload, if it is not that same file
    PLIMSOLL_PHANTOM_CONF     a phantom.conf, instead of an H200 written here
    PLIMSOLL_PYTHON           a Python with torch 2.11 (CUDA 13), instead of the one that runs pytest
"""

import glob
import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap

import pytest

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
AGENT = os.path.join(REPOSITORY, "agent")
PYTHON = os.environ.get("PLIMSOLL_PYTHON", sys.executable)
sys.path.insert(0, AGENT)

H200 = """
devices = 1
name = NVIDIA H200
compute_capability = 9.0
total_bytes = 150109880320
context_bytes = 788529152
sm_count = 132
max_threads_per_sm = 2048
max_blocks_per_sm = 32
shared_per_block_optin = 232448
shared_per_sm = 233472
registers_per_sm = 65536
l2_bytes = 62914560
clock_khz = 1980000
memory_clock_khz = 3201000
memory_bus_bits = 6144
driver_version = 13000
"""


class Process:
    """What one process of a run left behind."""

    def __init__(self, folder):
        self.folder = folder
        with open(os.path.join(folder, "agent.jsonl"), encoding="utf-8") as file:
            self.lines = [json.loads(line) for line in file]

    def all(self, kind):
        return [line for line in self.lines if line["kind"] == kind]

    def one(self, kind):
        (line,) = self.all(kind)
        return line

    @property
    def end(self):
        return self.one("end")

    @property
    def notes(self):
        return [line["code"] for line in self.all("note")]

    @property
    def steps(self):
        return [mark for mark in self.all("mark") if mark["what"] == "step_end"]

    @property
    def phases(self):
        """Top-level phases in order: forward, backward, ..."""
        return [mark["phase"] for mark in self.all("mark") if mark["what"] == "phase_begin"]

    def names(self, role):
        return {e["name"] for line in self.all("tensors") for e in line["entries"] if e["role"] == role}

    def trace(self, device=0):
        with open(os.path.join(self.folder, "snapshot.pickle"), "rb") as file:
            return pickle.load(file)["device_traces"][device]


class Run:
    """A finished run."""

    def __init__(self, finished, session):
        self.returncode = finished.returncode
        self.stdout = finished.stdout
        self.stderr = finished.stderr
        self.processes = [
            Process(os.path.dirname(path)) for path in sorted(glob.glob(os.path.join(session, "*", "agent.jsonl")))
        ]

    @property
    def process(self):
        """The only process that left anything."""
        assert len(self.processes) == 1, (self.processes, self.stderr)
        return self.processes[0]


class Launcher:
    """Runs programs with the agent inside. The one place that knows how."""

    def __init__(self, folder, phantom):
        self.folder = folder
        self.phantom = phantom
        self.count = 0

    def file(self, name, text):
        path = os.path.join(str(self.folder), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(text))
        return path

    def __call__(self, script, *arguments, stop="steady", agent=True, env=(), timeout=120):
        """Runs the text of a script."""
        self.count += 1
        path = self.file("script_%d.py" % self.count, script)
        return self.command([PYTHON, path, *arguments], stop=stop, agent=agent, env=env, timeout=timeout)

    def command(self, command, stop="steady", agent=True, env=(), timeout=120):
        """Runs any command."""
        self.count += 1
        session = os.path.join(str(self.folder), "session_%d" % self.count)
        os.makedirs(session, mode=0o700)
        environment = dict(os.environ)
        for name in [n for n in environment if n.startswith("PLIMSOLL_")] + ["PYTHONPATH", "RANK", "WORLD_SIZE"]:
            environment.pop(name, None)
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        if self.phantom is not None:
            self._put_on_phantom(environment, session)
        if agent:
            environment.update(PLIMSOLL_SESSION=session, PLIMSOLL_MODE="predict", PLIMSOLL_STOP=stop, PYTHONPATH=AGENT)
        for name, value in dict(env).items():
            known = environment.get(name) if name in ("PYTHONPATH", "LD_PRELOAD") else None
            environment[name] = os.pathsep.join(filter(None, [known, value]))
        finished = subprocess.run(
            command,
            cwd=str(self.folder),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=timeout,
        )
        return Run(finished, session)

    def _put_on_phantom(self, environment, session):
        library, preload, conf = self.phantom
        environment["LD_PRELOAD"] = preload
        environment["LD_LIBRARY_PATH"] = os.path.dirname(library)
        environment["PLIMSOLL_SESSION"] = session
        target = os.path.join(session, "phantom.conf")
        if conf:
            shutil.copy(conf, target)
        else:
            with open(target, "w", encoding="utf-8") as file:
                file.write(H200)


@pytest.fixture
def bare(tmp_path):
    """Runs programs that need no GPU and no torch."""
    return Launcher(tmp_path, None)


@pytest.fixture
def run(tmp_path):
    """Runs programs on the phantom."""
    library = os.environ.get("PLIMSOLL_PHANTOM_LIB")
    if not library:
        pytest.skip("PLIMSOLL_PHANTOM_LIB is not set; build the phantom and point it at libcuda.so.1")
    if not os.path.exists(library):
        pytest.fail("PLIMSOLL_PHANTOM_LIB=%s does not exist" % library)
    preload = os.environ.get("PLIMSOLL_PHANTOM_PRELOAD", library)
    return Launcher(tmp_path, (library, preload, os.environ.get("PLIMSOLL_PHANTOM_CONF")))
