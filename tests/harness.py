"""Runs the real binary, and programs on the phantom that it carries.

`make test-python` sets PLIMSOLL_BIN and PLIMSOLL_PYTHON.
"""

import atexit
import functools
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from warm import Warm

ROOT = Path(__file__).resolve().parents[1]
# The interpreter with torch, and what stands for it where only the script matters (warm.py).
COLD = os.environ.get("PLIMSOLL_PYTHON", sys.executable)
WARM = None if os.environ.get("PLIMSOLL_COLD") else Warm(COLD)
PYTHON = WARM.python if WARM else COLD


@functools.cache
def release_of(package):
    """The release that scripts get of it, such as (2, 11)."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return tuple(int(it) for it in subprocess.check_output([COLD, "-c", code], text=True).split(".")[:2])


MEASURED = pytest.mark.skipif(release_of("torch") != (2, 11), reason="a GPU was measured with the libraries of torch 2.11")
"""For what is compared with a number of a real GPU: NVIDIA's libraries of another release choose otherwise."""


def warm_up(cache, bare=False):
    """Before a command that may start PYTHON on the phantom, or without one."""
    if not WARM:
        return
    if not WARM.is_running("phantom"):
        unpacked = Unpacked.ask(cache, ("--gpu", "h200"))
        WARM.start("phantom", unpacked.environment(Path(WARM.folder, "session")), unpacked.agent)
    if bare and not WARM.is_running("bare"):
        WARM.start("bare", clean_environment(), Unpacked.ask(cache, ("--gpu", "h200")).agent)


@atexit.register
def _cool_down():
    if WARM:
        WARM.end()


def binary():
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = Path(os.environ.get("PLIMSOLL_BIN", target / "release" / "plimsoll"))
    assert path.is_file(), f"{path} is missing: run `make build`"
    return str(path)


def clean_environment():
    """Ours, without what would change a run."""
    res = dict(os.environ)
    for name in list(res):
        if name.startswith(("PLIMSOLL_", "PYTORCH_", "PYTEST_")) or name in ("CUDA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE", "PYTHONUNBUFFERED"):
            del res[name]
    res["HF_HUB_OFFLINE"] = "1"
    return res


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
        """A script without an interpreter is run by PYTHON."""
        return dict(clean_environment(), PLIMSOLL_CACHE=str(self.cache), PLIMSOLL_PYTHON=PYTHON) | more

    def cold(self, **more):
        """The environment in which a script without an interpreter gets a process and imports of its own."""
        return self.environment(PLIMSOLL_PYTHON=COLD, **more)

    def start(self, *arguments, environment=None, **options):
        """The process, for tests that do something to it."""
        if str(arguments[0]) in ("predict", "fit", "run", "check") or "--confirm" in arguments:
            warm_up(self.cache, bare="--no-gpu" in arguments)
        words = [binary(), *map(str, arguments)]
        options = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) | options
        return subprocess.Popen(words, cwd=self.folder, env=environment or self.environment(), text=True, **options)

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
            # An environment for other versions of torch may lack it; `python/test_json.py` does not let it be missing here.
            if importlib.util.find_spec("jsonschema"):
                from described import assert_described

                assert_described("predict", ran.report)
            assert_safe_is_safe(ran)
        self.assert_nothing_left()
        return ran

    def assert_nothing_left(self):
        for name in ("sessions", "layers"):
            folder = self.cache / "plimsoll-cache" / name
            assert not folder.exists() or not list(folder.iterdir()), name


def assert_safe_is_safe(ran):
    """Of every report of every test: nothing but what fits has a safe size, more than the card has is called tight, and no
    scheduler is asked for what is not safe."""
    report = ran.report
    safe = report["safe_bytes"]
    assert (safe is not None) == (report["verdict"] == "fits"), ran
    is_on_card = safe is not None and safe <= report["gpu_total_bytes"]
    if safe is not None and not is_on_card and "FITS" in ran.stdout:
        assert "TIGHT" in ran.stdout, ran
    if not is_on_card:
        assert not any(it in ran.stdout for it in ("#SBATCH --gres", "nvidia.com/gpu.product", "accelerators:", "@ray.remote")), ran


def assert_consistent(report):
    """What holds for every report of a run that came to an end."""
    for key in ["version", "outcome", "gpu", "steps_seen", "steady", "peak_allocated_bytes", "peak_reserved_bytes", "peak_device_bytes", "context_bytes", "safe_bytes", "categories", "top_lines", "top_modules", "cards", "notes", "seconds"]:
        assert key in report, key
    assert 0 < report["peak_allocated_bytes"] <= report["peak_reserved_bytes"] < report["peak_device_bytes"]
    if report["verdict"] == "fits":
        assert report["peak_device_bytes"] <= report["safe_bytes"]
    else:
        assert report["safe_bytes"] is None
    categories = report["categories"]
    sizes = categories.values() if isinstance(categories, dict) else [it["bytes"] for it in categories]
    assert sum(sizes) == report["peak_device_bytes"], categories
    assert len(report["top_lines"]) <= 10 and len(report["top_modules"]) <= 10


@dataclass(frozen=True)
class Unpacked:
    """What the binary gives to a script: its bundle on the disk, and the card as the phantom reads it."""

    preload: str
    lib: str
    agent: str
    conf: str

    @staticmethod
    def ask(cache, options):
        """Runs a shell in the place of a script and looks at what it was given."""
        look = 'printf "%s\\0" "$LD_PRELOAD" "$LD_LIBRARY_PATH" "$PYTHONPATH"; cat "$PLIMSOLL_SESSION/phantom.conf"'
        environment = dict(clean_environment(), PLIMSOLL_CACHE=str(cache))
        for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH"):
            environment.pop(name, None)
        command = [binary(), "predict", *options, "--", "sh", "-c", look]
        ran = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        parts = ran.stdout.split("\0")
        assert len(parts) == 4 and all(map(os.path.isfile, parts[0].split(":"))), ran
        return Unpacked(*parts)

    def environment(self, session):
        """That of a process on the phantom, without the agent; the card is written into the session."""
        Path(session).mkdir(mode=0o700, parents=True, exist_ok=True)
        Path(session, "phantom.conf").write_text(self.conf)
        return dict(
            clean_environment(),
            LD_PRELOAD=self.preload,
            LD_LIBRARY_PATH=self.lib,
            CUDNN_NVRTC_RUNTIME_LINKING="1",
            PLIMSOLL_SESSION=str(session),
            PYTHONDONTWRITEBYTECODE="1",
        )
