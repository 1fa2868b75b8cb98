#!/usr/bin/env python3
"""The tests of what people use (`fit`, `run`, the agent, remedies, Python's callbacks, values, the replay) under other environments than the one of `make test`.

    PLIMSOLL_BIN=target/debug/plimsoll tests/under.py /envs/torch28 /envs/torch215 [-- pytest's arguments]

Runs one environment after the other, and says of each how many passed and which failed. Exits with 1 if any did. An environment needs torch and pytest's
own needs no more: pytest is the one that runs this.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDERS = ("agent", "fit", "python", "phantom", "replay")


def failures(python, arguments):
    """The tests that failed under that interpreter, and pytest's last line."""
    words = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=no", *(arguments or [str(HERE / it) for it in FOLDERS])]
    ran = subprocess.run(words, cwd=HERE, env=dict(os.environ, PLIMSOLL_PYTHON=python), stdout=subprocess.PIPE, text=True)
    lines = ran.stdout.strip().splitlines() or ["pytest said nothing"]
    # The names of some have spaces in them, and what went wrong stands behind a dash.
    failed = [it.split(" ", 1)[1].split(" - ")[0] for it in lines if re.match("(FAILED|ERROR) ", it)]
    if ran.returncode not in (0, 1) and not failed:
        failed = [f"pytest exited with {ran.returncode}"]
    return failed, lines[-1].strip("= ")


def main():
    words, _, arguments = " ".join(sys.argv[1:]).partition(" -- ")
    if not words:
        sys.exit(__doc__)
    any_failed = False
    for given in words.split():
        path = Path(given)
        python = str(path / "bin" / "python" if path.is_dir() else path)
        release = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], stdout=subprocess.PIPE, text=True).stdout.strip()
        failed, last = failures(python, arguments.split())
        any_failed |= bool(failed)
        print(f"{given}: torch {release or 'none'}: {last}", *failed, sep="\n  ", flush=True)
    sys.exit(any_failed)


if __name__ == "__main__":
    main()
