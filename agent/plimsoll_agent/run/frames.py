"""Finds the line of a stack that is the user's own.

A stack is mostly PyTorch, transformers and Python itself. The line to report is the innermost one
that is not in an installed package, not in the standard library and not in plimsoll.
"""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
import types

from plimsoll_agent.run.guard import guarded

TYPE_CHECKING = False  # As typing has it, which is not imported for this.
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, TracebackType
    from typing import Any

    from plimsoll_agent.kinds import Frame, Line

# Spelt as code objects spell it: absolute, and as the entry of `sys.path` is.
AGENT = os.path.dirname(os.path.dirname(__file__)) + os.sep
_SITECUSTOMIZE = os.path.join(os.path.dirname(AGENT.rstrip(os.sep)), "sitecustomize.py")

_INSTALLED = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_STANDARD_LIBRARY = tuple(
    {os.path.realpath(path) + os.sep for name, path in sysconfig.get_paths().items() if name in ("stdlib", "platstdlib")}
    | {path + os.sep for name, path in sysconfig.get_paths().items() if name in ("stdlib", "platstdlib")}
)
_SCRIPTS = tuple({os.path.join(prefix, "bin") + os.sep for prefix in (sys.prefix, sys.base_prefix)})
_PACKAGES_OF_OTHERS = {"torch", "torchvision", "transformers", "accelerate", "lightning", "pytorch_lightning"}

OPTIMIZED = 1
"""`inspect.CO_OPTIMIZED`: a function, whose `f_locals` are a copy."""

_IS_COMMAND = "-c" in sys.orig_argv and "--multiprocessing-fork" not in sys.orig_argv
"""Else `<string>` is text that a library executes, as `dataclasses` does, or the first line of a child that multiprocessing spawns."""

_kinds: dict[str, bool] = {}
_installed: set[str] = set()
"""Packages of which no part is the user's: what is below them, some thousands of modules, is not looked at one by one."""


def is_ours(filename: str) -> bool:
    """Whether `filename` is a file of the agent."""
    return filename.startswith(AGENT) or filename == _SITECUSTOMIZE


def is_users(filename: str) -> bool:
    """Whether a person wrote `filename` for this run."""
    known = _kinds.get(filename)
    if known is None:
        known = _kinds[filename] = _decide(filename)
    return known


def _decide(filename: str) -> bool:
    if is_ours(filename) or filename.startswith("<frozen "):
        return False
    if filename.startswith("<"):
        return filename == "<stdin>" or filename == "<string>" and _IS_COMMAND  # python -, python -c
    if filename.endswith(".pyx") or any(part in filename for part in _INSTALLED):
        return False
    # A console script in bin/ is written by pip; what it calls is the program.
    return not filename.startswith(_STANDARD_LIBRARY + _SCRIPTS)


def modules_of_users(script: str | None = None) -> Iterator[tuple[types.ModuleType, str]]:
    """(module, file) of what a person wrote for this run and is imported. `script` is the main module's file, whose name Python takes
    from that module when the script has ended."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _installed or not isinstance(module, types.ModuleType):
            continue
        has = vars(module)  # Not `getattr`, for which a module may have a function that imports.
        is_main = has.get("__name__") == "__main__"
        file = has.get("__file__", script if is_main else None)
        if not isinstance(file, str):
            continue
        # Some of PyTorch's namespaces have a file without a folder.
        if (is_main or os.path.isabs(file)) and is_users(file):
            yield module, file
        elif "." not in name and has.get("__path__") and not any(is_users(os.path.join(it, "__init__.py")) for it in has["__path__"]):
            _installed.add(name)


def variables(frame: FrameType) -> dict[str, Any]:
    """What the names in a frame stand for, in a dict of its own."""
    found = dict(frame.f_locals)
    forget_copy(frame)
    return found


def forget_copy(frame: FrameType, holders: int = 0) -> None:
    """To be called after `frame.f_locals` was read. Up to Python 3.12 it is a copy that the frame keeps, and that would hold tensors. One
    that the script has, too (`given = locals()`), stays; `holders` is how often we have it."""
    names = frame.f_locals
    if not frame.f_code.co_flags & OPTIMIZED or type(names) is not dict:
        return
    # The frame, `names`, and the argument.
    if sys.getrefcount(names) <= 3 + holders:
        names.clear()


def stack(frame: FrameType | None, limit: int = 200) -> list[Frame]:
    """The frames from `frame` outwards, innermost first, as plain dicts, without the agent's."""
    found: list[Frame] = []
    while frame is not None and len(found) < limit:
        code = frame.f_code
        if not is_ours(code.co_filename):
            found.append({"file": code.co_filename, "line": frame.f_lineno, "function": code.co_name})
        frame = frame.f_back
    return found


def of_traceback(traceback: TracebackType | None, limit: int = 200) -> list[Frame]:
    """The frames of a traceback, innermost first, without the agent's."""
    found: list[Frame] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not is_ours(code.co_filename):
            found.append({"file": code.co_filename, "line": traceback.tb_lineno, "function": code.co_name})
        traceback = traceback.tb_next
    found.reverse()
    return found[:limit]


def user_frame(frames: list[Frame]) -> Line | None:
    """The innermost frame of `frames` that is the user's, with its source text; None if none.

    A training program that is itself an installed package has no such frame: then it is the
    innermost frame of that package.
    """
    for frame in frames:
        if is_users(frame["file"]):
            return with_text(frame)
    package = _program(frames)
    for frame in frames:
        if package is not None and _package(frame["file"]) == package:
            return with_text(frame)
    return None


def with_text(frame: Frame) -> Line:
    """`frame` with the source line in `text` (empty if it cannot be read)."""
    text = linecache.getline(frame["file"], frame["line"]).strip()
    return {**frame, "text": text}


def _package(filename: str) -> str | None:
    for part in _INSTALLED:
        head, found, tail = filename.rpartition(part)
        if found:
            return tail.split(os.sep)[0]
    return None


def _program(frames: list[Frame]) -> str | None:
    """The installed package that the run is about: the outermost one that is no framework."""
    for frame in reversed(frames):
        package = _package(frame["file"])
        if package is not None and package not in _PACKAGES_OF_OTHERS:
            return package
    return None


@guarded
def hide_ours(error: BaseException) -> None:
    """Takes our frames out of `error`'s traceback, so that it prints as if we were not there.

    For use in an `except` clause that re-raises with a bare `raise`.
    """
    head = error.__traceback__
    while head is not None and is_ours(head.tb_frame.f_code.co_filename):
        head = head.tb_next
    node = head
    while node is not None and node.tb_next is not None:
        if is_ours(node.tb_next.tb_frame.f_code.co_filename):
            node.tb_next = node.tb_next.tb_next
        else:
            node = node.tb_next
    error.__traceback__ = head
