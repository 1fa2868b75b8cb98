"""Runs scripts with the real torch on the phantom, without the agent."""

import json
import subprocess
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import COLD


@dataclass
class Finished:
    """A script that has run."""

    code: int
    stdout: str
    stderr: str
    report: dict
    """What the phantom has to confess."""

    @property
    def values(self):
        """What the script printed as JSON in its last line."""
        assert self.code == 0, self.stderr
        return json.loads(self.stdout.splitlines()[-1])

    @property
    def not_imitated(self):
        return {it["name"] for it in self.report["not_imitated"]}

    @property
    def approximated(self):
        return {it["what"] for it in self.report["approximated"]}


class Nursery:
    """See nursery.py. One for each worker of pytest."""

    def __init__(self, folder, unpacked):
        self.folder = folder
        self.count = 0
        self.process = subprocess.Popen(
            [COLD, Path(__file__).with_name("nursery.py")],
            env=unpacked.environment(folder / "unused"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, text, unpacked, environment, seconds):
        self.count += 1
        folder = self.folder / str(self.count)
        session = folder / "session"
        whole = unpacked.environment(session) | environment
        (folder / "script.py").write_text(textwrap.dedent(text))
        order = {"folder": str(folder), "environment": whole, "seconds": seconds}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        code = json.loads(self.process.stdout.readline())["code"]

        def read(name):
            return (folder / name).read_text() if (folder / name).exists() else ""

        return Finished(code, read("stdout"), read("stderr"), json.loads(read("report.json") or "{}"))


@pytest.fixture(scope="session")
def nursery(tmp_path_factory, unpack):
    res = Nursery(tmp_path_factory.mktemp("nursery"), unpack("--gpu", "h200"))
    yield res
    res.process.stdin.close()
    res.process.wait()


@pytest.fixture
def phantom(nursery, unpack):
    """Runs the text of a script on a card of the catalogue."""

    def phantom(text, *options, environment=(), seconds=120):
        return nursery.run(text, unpack(*(options or ("--gpu", "h200"))), dict(environment), seconds)

    return phantom
