"""Whether a child of a nursery is as a process of its own would be: the nursery imported what the program imports, before the program could change
the environment.

What imports read of it by Python is counted; libraries of C read it, too, but none of them what only one package in Python reads. A program that has
changed anything else by the time that it asks for what was imported is another one in a process of its own.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plimsoll_agent.kinds import Function

_OF_PYTHON = ("VLLM_", "HF_", "TRANSFORMERS_")

_read: set[str] = set()
_began_with: dict[str, str] | None = None


@contextlib.contextmanager
def counted() -> Iterator[None]:
    """Within, what is read of the environment is counted."""

    def counting(real: Function) -> Function:
        def __getitem__(environment: Any, name: str) -> Any:
            _read.add(name)
            return real(environment, name)

        return __getitem__

    counts = patch.replace(type(os.environ), "__getitem__", counting)
    try:
        yield
    finally:
        if counts is not None:
            counts.undo()


def program_begins() -> None:
    """The program of a child starts with this environment."""
    global _began_with
    _began_with = dict(os.environ)


def is_as_in_a_process() -> bool:
    """Whether nothing has changed since that could have changed an import; true where nothing was imported ahead."""
    before, now = _began_with, os.environ
    if before is None:
        return True
    changed = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
    return all(name.startswith(_OF_PYTHON) and name not in _read for name in changed)
