"""Queues without a limit that another thread or task fills, and that were empty when the run was looked at.

On this machine the training was faster than who fills them; on another one, with a faster disk or a slower GPU, it may not be. How much an entry
holds is read from what the training took last, or from what was put there last.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from plimsoll_agent.run import ahead, frames
from plimsoll_agent.run.extent import Variables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

    from plimsoll_agent.kinds import Torch

_PUTS, _TAKES = ("put", "put_nowait"), ("get", "get_nowait")
_DEEP = 3


def told(training: list[FrameType], torch: Torch, storage_of: Callable[[Any], tuple[int, int, int] | None]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(device, what stands in the recording) of each. `training` are the frames that run the training, `storage_of` a tensor says where it is."""
    training = [it for it in training if frames.is_users(it.f_code.co_filename)]
    seen = set()
    for stack in ahead.elsewhere():
        inside = [_Running(it) for it in stack]
        for filler in inside:
            for call, queue in filler.calls(_PUTS):
                if id(queue) in seen or ahead.kind_of(queue) != "queue" or ahead.members(queue):
                    continue
                seen.add(id(queue))
                name = ast.unparse(call.func.value)
                takers = [_Running(it) for it in training]
                if any(ahead.waits(it.function, name) or it.waits_for_an_answer(queue, takers) for it in inside):
                    continue
                entry = [value for it in takers for value in it.taken_from(queue)] or [filler.variables.value(it) for it in call.args]
                for device, (tensors, size) in sorted(_sizes(entry, torch.Tensor, storage_of).items()):
                    line = frames.with_text({"file": filler.file, "line": call.lineno, "function": filler.name})
                    yield (
                        device,
                        {
                            "where": name,
                            "what": "container",
                            "tensors": tensors,
                            "bytes": size,
                            "nodes": 0,
                            "addresses": [],
                            "line": line,
                            "unlimited": dict(kind="queue", entries=0),
                        },
                    )


class _Running:
    """A function of the user's that runs: its text, and its variables."""

    def __init__(self, frame: FrameType) -> None:
        self.file, self.name = frame.f_code.co_filename, frame.f_code.co_name
        self.function, self.variables = ahead.function_at(self.file, frame.f_lineno), Variables(frame)

    def calls(self, methods: tuple[str, ...]) -> Iterator[tuple[Any, Any]]:
        """(call, what it is a method of)."""
        for it in ast.walk(self.function):
            if isinstance(it, ast.Call) and isinstance(it.func, ast.Attribute) and it.func.attr in methods:
                yield it, self.variables.value(it.func.value)

    def waits_for_an_answer(self, queue: Any, takers: Iterable[_Running]) -> bool:
        """Whether it goes on only when the training has taken or answered what it put there."""
        if any(it.func.attr == "result" or not it.args for it, _ in self.calls(("result", "join"))):
            return True
        answers = {id(it) for taker in takers for _, it in taker.calls(_PUTS) if it is not None and it is not queue}
        return any(id(it) in answers for _, it in self.calls(_TAKES))

    def taken_from(self, queue: Any) -> Iterator[Any]:
        """What its variables have of what was taken last."""
        for it in ast.walk(self.function):
            if isinstance(it, (ast.Assign, ast.NamedExpr)):
                methods = (call.func for call in ast.walk(it.value) if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute))
                if any(method.attr in _TAKES and self.variables.value(method.value) is queue for method in methods):
                    for target in it.targets if isinstance(it, ast.Assign) else [it.target]:
                        yield from (self.variables.by_name(name.id) for name in ast.walk(target) if isinstance(name, ast.Name))


def _sizes(values: list[Any], tensor: type, storage_of: Callable[[Any], tuple[int, int, int] | None]) -> dict[int, tuple[int, int]]:
    """(tensors, bytes) on each device of what is in some values."""
    found: dict[int, dict[int, int]] = {}
    todo = [(it, 0) for it in values]
    while todo:
        value, depth = todo.pop()
        if isinstance(value, tensor):
            where = storage_of(value)
            if where is not None:
                device, address, size = where
                found.setdefault(device, {})[address] = size
        elif depth < _DEEP and isinstance(value, (list, tuple, dict)):
            todo += [(it, depth + 1) for it in (value.values() if isinstance(value, dict) else value)]
    return {device: (len(sizes), sum(sizes.values())) for device, sizes in found.items()}
