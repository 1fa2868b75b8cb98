"""`torchrun` becomes the rank that it would have started, in its own process, which has imported torch already.

Until then the agent waits, as it does in a nursery: what is left when `torchrun` is about to start its ranks is as fresh as a process of
their own would be. Where every rank is to run, or the rank is no Python program, the agent is installed there and `torchrun` goes on.
"""

from __future__ import annotations

import functools
import os
import sys

from plimsoll_agent import patch
from plimsoll_agent.run.after_import import after_import

TYPE_CHECKING = False  # As typing has it, which is not imported for this.
if TYPE_CHECKING:
    from typing import Any

    from plimsoll_agent.kinds import Library, Named, Torch

_LAUNCHER = "torch.distributed.launcher.api"


def is_here() -> bool:
    """Whether this process runs `torchrun`; asked when torch has just been imported."""
    words = sys.orig_argv
    return os.path.basename(sys.argv[0]) == "torchrun" or sys.argv[0] == "-m" and ("-m", "torch.distributed.run") in zip(words, words[1:])


def wait(torch: Torch) -> None:
    """Until ranks are started."""
    after_import(_LAUNCHER, functools.partial(_wrap, torch))


def _wrap(torch: Torch, module: Library) -> None:
    _ask_for_no_device(torch, module.LaunchConfig)
    launch = module.elastic_launch.__call__

    @functools.wraps(launch)
    def __call__(self: Any, *args: Any) -> Any:
        from plimsoll_agent import agent
        from plimsoll_agent.ranks import imagined

        patch.put(module.elastic_launch, "__call__", launch)
        program, arguments = _program([self._entrypoint, *args])
        if program is None or imagined.take_rank_of(self._config) is None:
            agent.install(torch)
            return module.elastic_launch.__call__(self, *args)
        threads = os.environ.get("OMP_NUM_THREADS", "")
        if threads.isdigit() and int(threads):
            torch.set_num_threads(int(threads))  # Set since torch was imported.
        raise _Become(program, arguments)

    patch.put(module.elastic_launch, "__call__", __call__)


def _ask_for_no_device(torch: Torch, config: Any) -> None:
    """It asks whether each process gets a device, to bind it to processors near that. How many devices there are is asked once in a process,
    and the rank has more than the launcher."""
    check = config.__post_init__

    @functools.wraps(check)
    def __post_init__(self: Any) -> None:
        is_available = torch.cuda.is_available
        patch.put(torch.cuda, "is_available", lambda: False)
        try:
            check(self)
        finally:
            patch.put(torch.cuda, "is_available", is_available)

    patch.put(config, "__post_init__", __post_init__)


class _Become(BaseException):
    """Leaves everything that the launcher is doing: nothing of it is around the program."""

    def __init__(self, program: Named, arguments: list[str]) -> None:
        self._program, self._arguments, self._environment = program, arguments, dict(os.environ)
        self._hook, sys.excepthook = sys.excepthook, self._go_on

    def _go_on(self, *_: Any) -> None:
        from plimsoll_agent import nursery

        sys.excepthook = self._hook
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            sys.__dict__.pop(name, None)
        os.environ.clear()
        os.environ.update(self._environment)
        script = self._program.get("script")
        if not getattr(sys.flags, "safe_path", False):  # As Python itself does it.
            sys.path[0] = os.path.dirname(os.path.abspath(script)) if script else os.getcwd()
        for it in (sys.stdout, sys.stderr):
            it.reconfigure(write_through=True)  # type: ignore[union-attr]
        nursery.live(functools.partial(nursery.run, self._program, self._arguments))


def _program(words: list[Any]) -> tuple[Any, list[str]]:
    """What the rank runs, as a nursery is told, and its arguments; nothing if it is no Python program."""
    if not all(isinstance(it, str) for it in words) or words[0] != sys.executable:
        return None, []
    rest = words[2:] if words[1:2] == ["-u"] else words[1:]
    if rest[:1] == ["-m"] and rest[1:]:
        return {"module": rest[1]}, rest[2:]
    if not rest or rest[0].startswith("-"):
        return None, []
    return {"script": os.path.abspath(rest[0]), "name": rest[0]}, rest[1:]
