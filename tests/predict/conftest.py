"""Runs the real binary on real training scripts. `make test-python` sets PLIMSOLL_BIN and PLIMSOLL_PYTHON."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("PLIMSOLL_PYTHON", sys.executable)


def binary():
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = Path(os.environ.get("PLIMSOLL_BIN", target / "release" / "plimsoll"))
    assert path.is_file(), f"{path} is missing: run `make build`"
    return str(path)


@dataclass
class Ran:
    """How a run of plimsoll ended."""

    code: int
    stdout: str
    stderr: str
    report: dict | None

    @property
    def sentences(self):
        """What plimsoll itself says on standard error."""
        prefix = "plimsoll: "
        return [line.removeprefix(prefix) for line in self.stderr.splitlines() if line.startswith(prefix)]

    def assert_sentence(self, *parts):
        """It could not tell, and one sentence says why."""
        assert self.code == 2, self
        assert len(self.sentences) == 1, self
        for part in parts:
            assert part in self.sentences[0], self
        assert "panicked" not in self.stderr, self
        if self.report is not None:
            assert self.report["outcome"] == "script_failed", self


class Plimsoll:
    """The binary, with a cache and a working folder of its own."""

    def __init__(self, folder, cache):
        self.folder = folder
        self.cache = cache

    def script(self, text, name="train.py"):
        path = self.folder / name
        path.write_text(text)
        return path

    def environment(self, **more):
        res = dict(os.environ, PLIMSOLL_CACHE=str(self.cache), PLIMSOLL_PYTHON=PYTHON)
        res.pop("CUDA_VISIBLE_DEVICES", None)
        res["HF_HUB_OFFLINE"] = "1"
        res.update(more)
        return res

    def start(self, *arguments, environment=None, **options):
        """The process, for tests that do something to it."""
        words = [binary(), *map(str, arguments)]
        return subprocess.Popen(
            words, cwd=self.folder, env=environment or self.environment(), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
        )

    def run(self, *arguments, environment=None, timeout=300):
        with self.start(*arguments, environment=environment) as process:
            try:
                stdout, stderr = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return Ran(process.returncode, stdout, stderr, None)

    def predict(self, *command, options=(), environment=None):
        """`plimsoll predict` with the report read; a command that is one script runs in PYTHON."""
        path = self.folder / "report.json"
        path.unlink(missing_ok=True)
        ran = self.run("predict", "--json", path, *options, "--", *command, environment=environment)
        if path.exists() and path.stat().st_size:
            ran.report = json.loads(path.read_text())
        self.assert_nothing_left()
        return ran

    def assert_nothing_left(self):
        sessions = self.cache / "sessions"
        assert not sessions.exists() or not list(sessions.iterdir())


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def plimsoll(tmp_path, cache):
    return Plimsoll(tmp_path, cache)


def assert_consistent(report):
    """What holds for every report of a run that came to an end."""
    for key in (
        "version outcome gpu steps_seen steady peak_allocated_bytes peak_reserved_bytes peak_device_bytes "
        "context_bytes safe_bytes categories top_lines top_modules cards notes seconds"
    ).split():
        assert key in report, key
    assert 0 < report["peak_allocated_bytes"] <= report["peak_reserved_bytes"] < report["peak_device_bytes"]
    assert report["peak_device_bytes"] <= report["safe_bytes"]
    categories = report["categories"]
    sizes = categories.values() if isinstance(categories, dict) else [it["bytes"] for it in categories]
    assert sum(sizes) == report["peak_device_bytes"], categories
    assert len(report["top_lines"]) <= 10 and len(report["top_modules"]) <= 10
