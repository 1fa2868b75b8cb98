"""What threads of the script's own put where nothing limits them: how far they get before the training takes it depends on the machine.

A queue without a `maxsize`, a deque without a `maxlen`, results of a pool of threads. The text of the function that fills it says whether another thread
runs it, and whether it waits for room in a way of its own: it asks for the length, or waits for a semaphore or a condition.
"""

from __future__ import annotations

import ast
import collections
import gc
import queue
import sys
import threading
import types
from typing import TYPE_CHECKING, Any

from plimsoll_agent import source
from plimsoll_agent.run import frames

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from plimsoll_agent.kinds import Line

_MOST_OF_A_WINDOW = 16
"""Calls that are given to a pool some at a time are no more than these; all at once, they are as many as there are batches."""

_ALWAYS = {"run_in_executor", "to_thread", "start_new_thread", "submit", "map", "create_task", "ensure_future", "gather"}
"""Functions that have others called by a thread or a task of its own."""


def kind_of(container: Any) -> str | None:
    """Of what has no limit: `queue`, `deque` or `results` of a pool. None of what has one, and of everything else."""
    if isinstance(container, queue.Queue) or _is_of_asyncio(container):
        return "queue" if container.maxsize <= 0 else None
    if isinstance(container, queue.SimpleQueue):
        return "queue"
    if isinstance(container, collections.deque):
        owner = _owner(container)
        return kind_of(owner) if owner is not None else "deque" if container.maxlen is None else None
    return "results" if isinstance(container, _future()) else None


def _owner(entries: collections.deque[Any]) -> Any:
    """The queue whose entries these are: a thread that looks into it may lead past it."""
    of_asyncio = _of("asyncio.queues", "Queue")
    for it in gc.get_objects():
        name = "queue" if issubclass(type(it), queue.Queue) else "_queue" if type(it) is of_asyncio else None
        if name is not None and getattr(it, name, None) is entries:
            return it
    return None


def members(container: Any) -> list[Any] | None:
    """What waits in a queue, or what a call in a pool returned; None of everything else."""
    if isinstance(container, queue.Queue):
        return list(container.queue)
    if _is_of_asyncio(container):
        return list(container._queue)
    if isinstance(container, queue.SimpleQueue):
        found = gc.get_referents(container)
        # Until Python 3.12 it has a list.
        return [it for each in found for it in (each if isinstance(each, list) else [each]) if not isinstance(it, type)]
    if isinstance(container, _future()):
        return [vars(container).get("_result")]
    return None


def calls() -> list[Any]:
    """Those that were given to pools of threads; `map` has them where no variable leads to them."""
    pools = sys.modules.get("concurrent.futures.thread")
    # To look at every object takes a third of a second.
    if pools is None or not len(pools._threads_queues):
        return []
    future = _future()
    return [it for it in gc.get_objects() if type(it) is future]


def begins(file: str) -> Iterator[ast.Call]:
    """Where a pool is given something to call."""
    for it in ast.walk(source.tree(file)):
        if isinstance(it, ast.Call) and isinstance(it.func, ast.Attribute) and it.func.attr in ("submit", "map"):
            yield it


def is_filled_by_another(kind: str, line: Line, name: str) -> bool:
    """Whether a thread or a task of its own runs the function with this line, which fills `name`, and nothing in it waits for room."""
    inside = function_at(line["file"], line["line"])
    running = _running_elsewhere(line["file"], line["function"])
    if any(waits(it, name) for it in [inside, *running]):
        return False
    if kind == "results":
        return _MOST_OF_A_WINDOW < len(calls())
    return bool(running) or isinstance(inside, ast.AsyncFunctionDef) or _is_begun(source.tree(line["file"]), line["function"])


def running_elsewhere() -> list[FrameType]:
    """The functions of the user's that other threads and other tasks run."""
    return [it for stack in elsewhere() for it in stack]


def elsewhere() -> Iterator[list[FrameType]]:
    """The user's frames of each other thread, and of each other task of this one, the innermost first."""
    others = sys._current_frames()
    # A frame of this thread would hold all that called it, until Python collects garbage: this function runs in it.
    del others[threading.get_ident()]
    for frame in others.values():
        stack = []
        at: FrameType | None = frame
        while at is not None:
            if frames.is_users(at.f_code.co_filename):
                stack.append(at)
            at = at.f_back
        yield stack
    yield from _other_tasks()


def _other_tasks() -> Iterator[list[FrameType]]:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None:
        return
    current = asyncio.current_task()
    for task in asyncio.all_tasks():
        stack = []
        coroutine = task.get_coro() if task is not current else None
        while isinstance(coroutine, types.CoroutineType) and coroutine.cr_frame is not None:
            if frames.is_users(coroutine.cr_frame.f_code.co_filename):
                stack.append(coroutine.cr_frame)
            coroutine = coroutine.cr_await
        yield stack[::-1]


def function_at(file: str, line: int) -> ast.AST:
    """The innermost one around a line; the whole file if there is none."""
    tree = source.tree(file)
    around = [it for it in ast.walk(tree) if isinstance(it, (ast.FunctionDef, ast.AsyncFunctionDef)) and it.lineno <= line <= (it.end_lineno or it.lineno)]
    return max(around, key=lambda it: it.lineno) if around else tree


def _of(module: str, name: str) -> type:
    """A class of a module, if the script has imported that."""
    found: Any = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) else _Nothing


class _Nothing:
    """What no object is."""


def _is_of_asyncio(container: Any) -> bool:
    return isinstance(container, _of("asyncio.queues", "Queue"))


def _future() -> type:
    return _of("concurrent.futures._base", "Future")


def waits(inside: ast.AST, name: str) -> bool:
    """Whether a function that fills `name` waits for room there in a way of its own."""
    last = name.rpartition(".")[2]
    for it in ast.walk(inside):
        if isinstance(it, ast.Compare):
            calls = [call for call in ast.walk(it) if isinstance(call, ast.Call)]
            if any(_last(call.func) in ("qsize", "full") or _last(call.func) == "len" and call.args and _last(call.args[0]) == last for call in calls):
                return True
        if isinstance(it, ast.Call) and isinstance(it.func, ast.Attribute) and it.func.attr in ("acquire", "wait", "full"):
            # A lock keeps nobody from being far ahead, nor does a short sleep.
            if it.func.attr != "acquire" and not it.args or it.func.attr == "acquire" and "lock" not in (_last(it.func.value) or "").lower():
                return True
    return False


def _is_begun(tree: ast.AST, function: str) -> bool:
    """`Thread(target=function)`, `pool.submit(function)`, or `run` of a thread's class."""
    for it in ast.walk(tree):
        if isinstance(it, ast.ClassDef) and any((_last(base) or "").endswith("Thread") for base in it.bases):
            if any(isinstance(part, ast.FunctionDef) and part.name == function == "run" for part in it.body):
                return True
        if isinstance(it, ast.Call):
            given = [word.value for word in it.keywords if word.arg == "target"]
            given += it.args[:2] if _last(it.func) in _ALWAYS else []
            given = [part.func if isinstance(part, ast.Call) else part for part in given]
            if any(_last(part) == function for part in given):
                return True
    return False


def _running_elsewhere(file: str, function: str) -> list[ast.AST]:
    """The functions of the user's that a thread runs which runs this one now; none if there is no other."""
    for stack in elsewhere():
        if any((file, function) == (it.f_code.co_filename, it.f_code.co_name) for it in stack):
            return [function_at(it.f_code.co_filename, it.f_lineno) for it in stack]
    return []


def _last(node: ast.AST) -> str | None:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
