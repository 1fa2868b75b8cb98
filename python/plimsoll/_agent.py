"""The agent in this very process: the one that plimsoll started it with, or one that begins now."""

from __future__ import annotations

import atexit
import importlib
import os
import shutil
import sys
import tempfile
from typing import Any

from plimsoll import _binary
from plimsoll._binary import PlimsollError


def agent(events: int, *, asleep: bool) -> Any:
    """The agent of this process. One that begins `asleep` records nothing until `record_all` is called."""
    running = sys.modules.get("plimsoll_agent.agent")
    if running is not None and running.current() is not None:
        return running.current()
    folder = _binary.run(["agent"]).stdout.strip()
    if not os.path.isdir(folder):
        raise PlimsollError(f"{_binary.binary()} has no agent of this package's version ({_version()}); install the package again: "
            "pip install --force-reinstall plimsoll-gpu")
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise PlimsollError("this Python has no torch to record; install it: pip install torch") from error
    sys.path.append(folder)
    try:
        module = importlib.import_module("plimsoll_agent.agent")
    finally:
        sys.path.remove(folder)
    session = tempfile.mkdtemp(prefix="plimsoll-session-")
    atexit.register(_remove, session, os.getpid())
    return module.begin_late(torch, session, events, asleep)


def _remove(session: str, pid: int) -> None:
    if os.getpid() == pid:  # Not in a forked child.
        shutil.rmtree(session, True)


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("plimsoll-gpu")
    except metadata.PackageNotFoundError:
        return "the sources"
