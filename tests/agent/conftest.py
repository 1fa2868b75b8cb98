"""How the agent's tests run a script: in a process of its own, on the phantom that the binary carries."""

import glob
import json
import os
import pickle
import subprocess
import textwrap

import pytest
from harness import PYTHON, clean_environment, warm_up


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
        # What is to be said of the release that runs the test is no part of it.
        return [line["code"] for line in self.all("note") if line["code"] != "torch-version"]

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

    def __init__(self, folder, cache, unpacked, *, phantom):
        self.folder = folder
        self.cache = cache
        self.unpacked = unpacked
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
        if self.phantom:
            warm_up(self.cache)
        self.count += 1
        session = os.path.join(str(self.folder), "session_%d" % self.count)
        if self.phantom:
            environment = self.unpacked.environment(session)
        else:
            os.makedirs(session, mode=0o700)
            environment = dict(clean_environment(), PYTHONDONTWRITEBYTECODE="1")
        environment.pop("PYTHONPATH", None)
        if agent:
            environment.update(
                PLIMSOLL_SESSION=session, PLIMSOLL_MODE="predict", PLIMSOLL_STOP=stop, PYTHONPATH=self.unpacked.agent
            )
        for name, value in dict(env).items():
            known = environment.get(name) if name == "PYTHONPATH" else None
            environment[name] = os.pathsep.join(filter(None, [known, value]))
        finished = subprocess.run(
            command,
            cwd=str(self.folder),
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        return Run(finished, session)


@pytest.fixture
def bare(tmp_path, cache, unpack):
    """Runs programs that need no GPU and no torch."""
    return Launcher(tmp_path, cache, unpack("--gpu", "h200"), phantom=False)


@pytest.fixture
def run(tmp_path, cache, unpack):
    """Runs programs on the phantom."""
    return Launcher(tmp_path, cache, unpack("--gpu", "h200"), phantom=True)
