"""Finds whether the text of a script mentions an evaluation or a checkpoint, and whether it counts steps or epochs.

This decides only whether the run waits for one, and what it waits for first. No number of a report depends on it.
"""

from __future__ import annotations

import os
import re
import sys

from plimsoll_agent.run import frames

LATER = re.compile(
    r"(?<![a-z])(eval|valid|val_|test_|inference_mode|no_grad|set_grad_enabled|checkpoint|save|state_dict|deepcopy)",
    re.IGNORECASE,
)
EVALUATION = re.compile(r"(?<![a-z])(eval|valid|val(?![a-z])|test|generate|sample)", re.IGNORECASE)
EVERY = re.compile(r"(\w+)[\s)]*(?:\+\s*\d+[\s)]*)?%")
"""As in `if (step + 1) % 100 == 0`."""
SETTING = re.compile(
    r"(?<![a-z])(?:eval|val|valid|validation|test)\w*_(?:step|interval|every|freq|iter)|_strategy\W{1,3}steps", re.IGNORECASE
)
NEAR = 3
"""So many lines from an `if` the evaluation stands below it."""

MOST_FILES = 200
MOST_BYTES = 1 << 20


class Hints:
    """What the text of the user's files speaks of."""

    def __init__(self) -> None:
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        # A program that is no file may speak of anything.
        self.later = main is None or not os.path.isfile(main)
        """Of something that comes later."""
        self.by_steps = False
        """Of an evaluation every so many steps."""
        for file in sorted(_files(main))[:MOST_FILES]:
            self._read(file)

    def _read(self, file: str) -> None:
        try:
            if MOST_BYTES < os.path.getsize(file):
                return
            with open(file, encoding="utf-8", errors="replace") as text:
                lines = [line.partition("#")[0] for line in text]
        except OSError:
            return
        self.later = self.later or any(map(LATER.search, lines))
        self.by_steps = self.by_steps or any(map(SETTING.search, lines))
        for number, line in enumerate(lines):
            every = EVERY.search(line) if line.lstrip().startswith(("if", "elif")) else None
            if every is not None and "epoch" not in every.group(1).lower():
                near = lines[number : number + 1 + NEAR]
                self.by_steps = self.by_steps or any(map(EVALUATION.search, near))


def _files(main: str | None) -> set[str]:
    files = {main} if main is not None and os.path.isfile(main) else set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and os.path.isfile(file) and frames.is_users(file):
            files.add(file)
    return files
