"""Sees lines that open GPU 0 in every rank: a checkpoint that is loaded to where it was saved from, tensors on "cuda" before `set_device`.

The rank that runs is the first one, whose own GPU that is. The other ranks, which are imagined, run the same lines, unless a condition asks
for the rank. Read are the text of the script, and which blocks are live when the rank chooses its GPU or ends its first step.
"""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch, source
from plimsoll_agent.ranks import imagined
from plimsoll_agent.run import frames
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Frame, Function, Torch
    from plimsoll_agent.run.recording import Recording

LEAST = 2**20
"""Fewer bytes are not looked at: a lone number on the GPU costs the context all the same, but is mostly a library's."""
_ASKS_FOR_RANK = ("rank", "main_process", "is_main", "master", "is_first")


class FirstGpu:
    """Looks at the first rank of a job that has a GPU for each rank."""

    def __init__(self, torch: Torch, recording: Recording) -> None:
        self._torch, self._recording = torch, recording
        self._told: set[tuple[str, int]] = set()
        self._has_chosen = True

    def install(self) -> None:
        """Takes its places, where this process is such a rank."""
        if not imagined.is_first() or self._torch.cuda.device_count() < 2:
            return
        self._has_chosen = False
        load = self._around_load(self._torch.serialization.load)
        patch.put(self._torch.serialization, "load", load)
        patch.put(self._torch, "load", load)
        patch.replace(self._torch.cuda, "set_device", self._around_choice)

    def step_ended(self) -> None:
        """The end of the first step: who has not chosen a GPU by now never does."""
        if not self._has_chosen:
            self._chosen()

    def _around_load(self, real: Function) -> Function:
        def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
            if map_location is not None:
                return real(f, map_location, *args, **kwargs)
            before = self._held()
            loaded = real(f, map_location, *args, **kwargs)
            self._loaded(self._held() - before)
            return loaded

        return load

    def _around_choice(self, real: Function) -> Function:
        def set_device(device: Any) -> None:
            if not self._has_chosen:
                self._chosen()
            real(device)

        return set_device

    def _held(self) -> int:
        return int(self._torch.cuda.memory_allocated(0)) if self._torch.cuda.is_initialized() else 0

    @guarded
    def _loaded(self, size: int) -> None:
        if LEAST <= size:
            stack = frames.stack(sys._getframe(1))
            if not any(_is_for_one_rank(it) for it in stack):
                self._tell("load", stack, size)

    @guarded
    def _chosen(self) -> None:
        """What is on GPU 0 by lines that name no GPU."""
        self._has_chosen = True
        if not self._held():
            return
        found: dict[tuple[str, int], tuple[int, list[Frame]]] = {}
        for segment in self._torch.cuda.memory_snapshot():
            for block in segment["blocks"] if segment["device"] == 0 else ():
                stack: list[Frame] = [{"file": it["filename"], "line": it["line"], "function": it["name"]} for it in block.get("frames", ()) if not frames.is_ours(it["filename"])]
                user = frames.user_frame(stack) if block["state"] == "active_allocated" else None
                if user is not None:
                    key = user["file"], user["line"]
                    found[key] = found.get(key, (0, stack))[0] + block["size"], stack
        for (file, line), (size, stack) in found.items():
            if LEAST <= size and _names_no_gpu(file, line) and not any(_is_for_one_rank(it) for it in stack):
                self._tell("default", stack, size)

    def _tell(self, way: str, stack: list[Frame], size: int) -> None:
        line = frames.user_frame(stack)
        if line is not None and (line["file"], line["line"]) not in self._told and len(self._told) < 16:
            self._told.add((line["file"], line["line"]))
            self._recording.write("first_gpu", way=way, bytes=size, at=line)


def _is_for_one_rank(frame: Frame) -> bool:
    """Whether the line is inside an `if` that asks for the rank."""
    if not frames.is_users(frame["file"]):
        return False
    ifs = (it for it in ast.walk(source.tree(frame["file"])) if isinstance(it, ast.If) and it.lineno <= frame["line"] <= (it.end_lineno or it.lineno))
    return any(part in ast.unparse(it.test).lower() for it in ifs for part in _ASKS_FOR_RANK)


def _names_no_gpu(file: str, line: int) -> bool:
    """Whether the statement says `.cuda()`, or "cuda" without a number, itself or by a name of the file."""
    tree = source.tree(file)
    here = [it for it in ast.walk(tree) if isinstance(it, ast.stmt) and it.lineno <= line <= (it.end_lineno or it.lineno)]
    if not here:
        return False
    parts = list(ast.walk(max(here, key=lambda it: (it.lineno, -(it.end_lineno or 0)))))
    names = {it.id if isinstance(it, ast.Name) else it.attr for it in parts if isinstance(it, (ast.Name, ast.Attribute))}
    given = [it.value for it in ast.walk(tree) if isinstance(it, ast.Assign) and any(_name(target) in names for target in it.targets)]
    bare = any(isinstance(it, ast.Call) and isinstance(it.func, ast.Attribute) and it.func.attr == "cuda" and not it.args and not it.keywords for it in parts)
    return bare or any(isinstance(it, ast.Constant) and it.value == "cuda" for it in (*parts, *(it for value in given for it in ast.walk(value))))


def _name(target: ast.AST) -> str | None:
    return target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else None
