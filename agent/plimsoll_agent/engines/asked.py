"""What a search asks of a serving engine, and what the engine's process is given for it.

A search (`plimsoll fit`) writes JSON: `flags`, which the engine is started with instead of its own; `users` and `context`, for which it
says what its cache holds. It ends the run as soon as that is known: where the cache holds too little, once it is planned; else once the
engine is ready.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from plimsoll_agent.kinds import Function
    from plimsoll_agent.run.stopping import Stopping
    from plimsoll_agent.run.training_steps import Steps

LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576)
"""Contexts that users may have, in tokens."""



@dataclass(frozen=True)
class Asked:
    """What a search asks of the engine."""

    is_search: bool = False
    flags: dict[str, dict[str, Any]] = field(default_factory=dict)
    """For each engine, by the names of its own arguments."""
    users: int = 1
    """How many the cache is to hold, of `context` tokens each, or of as many as the engine is to serve."""
    context: int | None = None


def asked_by(text: str) -> Asked:
    """What the environment says; nothing if it is empty."""
    return Asked(is_search=True, **json.loads(text)) if text else Asked()


@dataclass(frozen=True)
class Program:
    """What the engine's process is told, beside the recording."""

    steps: Steps
    stopping: Stopping
    failed: Callable[[BaseException], None]
    """An error ends this process, and its program does not raise it."""
    paused: Callable[[], AbstractContextManager[None]]
    """Kernels are launched within, while the engine measures its passes and graphs, and warms up."""


def with_flags(flags: dict[str, Any], place: str) -> Callable[[Any], None]:
    """Has the arguments of an engine, which `place` of a class reads, be `flags`."""

    def make(real: Function) -> Function:
        def method(arguments: Any, *args: Any, **kwargs: Any) -> Any:
            for name, value in flags.items():
                setattr(arguments, name, value)
            return real(arguments, *args, **kwargs)

        return method

    def act(owner: Any) -> None:
        if flags:
            patch.replace(owner, place, make)

    return act


def end(stopping: Stopping) -> None:
    """The search knows what it asked: the run ends here."""
    stopping.request()
    stopping.here(threading.get_ident())


def telling_failures(failed: Callable[[BaseException], None], place: Callable[[Function], Function], real: Function) -> Function:
    """A worker in a process of its own logs what it raised, and ends as if all were well."""
    placed = place(real)

    def method(*args: Any, **kwargs: Any) -> Any:
        try:
            return placed(*args, **kwargs)
        except Exception as error:
            if is_child():
                failed(error)
            raise

    return method


def is_child() -> bool:
    """Whether this process is one of multiprocessing's, which its parent waits for."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    return multiprocessing is not None and multiprocessing.parent_process() is not None


def longest_of(users_of: Callable[[int], int], users: int, most: int) -> int:
    """The longest request of which a cache holds so many, up to `most` tokens."""
    least = 0
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if users <= users_of(middle) else (least, middle - 1)
    return least
