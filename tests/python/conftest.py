"""Python programs that use the package, each in a process of its own, with the phantom where they need a GPU."""

import subprocess

import pytest
from harness import PYTHON, ROOT, binary, clean_environment, warm_up


class Program:
    """A folder for scripts, and what they are run with."""

    def __init__(self, folder, cache, unpack):
        self.folder, self._cache, self._unpack = folder, cache, unpack

    def environment(self):
        return clean_environment() | {
            "PYTHONPATH": str(ROOT / "python"),
            "PLIMSOLL_BIN": binary(),
            "PLIMSOLL_CACHE": str(self._cache),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def on_a_device(self, *options):
        """The same on a machine that has the card: a phantom in the place of the real one."""
        unpacked = self._unpack(*options)
        conf = self.folder / "card.conf"
        conf.write_text(unpacked.conf)
        return self.environment() | {
            "LD_PRELOAD": unpacked.preload,
            "LD_LIBRARY_PATH": unpacked.lib,
            "PLIMSOLL_PHANTOM_CONF": str(conf),
        }

    def run(self, text, *arguments, environment=None, name="train.py", python=(PYTHON,), timeout=600):
        path = self.folder / name
        path.write_text(text)
        return self.start(*python, name, *arguments, environment=environment, timeout=timeout)

    def start(self, *words, environment=None, timeout=600, **options):
        warm_up(self._cache, bare=True)
        options = dict(stdin=subprocess.DEVNULL) | options
        return subprocess.run(
            list(map(str, words)), cwd=self.folder, env=environment or self.environment(), capture_output=True, text=True,
            timeout=timeout, **options
        )


@pytest.fixture
def program(tmp_path, cache, unpack):
    return Program(tmp_path, cache, unpack)
