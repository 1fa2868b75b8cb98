"""What the names in the line that ran out stand for: the shapes of tensors, and whole numbers. Only variables and attributes are read; no property
and no call of the line runs.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from plimsoll_agent import source
from plimsoll_agent.run import extent, frames
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from types import FrameType

    from plimsoll_agent.kinds import Named, Torch

MOST = 6


@guarded
def of_line(torch: Torch, frame: FrameType | None) -> list[Named]:
    """Those of the innermost line of the user's that `frame` runs in, in the order of its text."""
    while frame is not None and not frames.is_users(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return []
    line = frame.f_lineno
    around = [it for it in ast.walk(source.tree(frame.f_code.co_filename)) if isinstance(it, extent.STATEMENTS) and it.lineno <= line <= (it.end_lineno or it.lineno)]
    statement = min(around, key=lambda it: (it.end_lineno or it.lineno) - it.lineno, default=None)
    if statement is None or statement.value is None:
        return []
    variables = {**frame.f_globals, **frames.variables(frame)}
    found: dict[str, Named] = {}
    for node in _in_order(statement.value):
        text, told = _of_owner(torch, node, variables)
        if told is not None and len(found) < MOST:
            found[text] = {"name": text, **told}
    return list(found.values())


def _of_owner(torch: Torch, node: ast.AST, variables: dict[str, Any]) -> tuple[str, Named | None]:
    """Of `x.masked_fill`, that of `x`."""
    told = _told(torch, _value(node, variables))
    if told is None and isinstance(node, ast.Attribute):
        return _of_owner(torch, node.value, variables)
    return ast.unparse(node), told


def _in_order(node: ast.AST) -> list[ast.AST]:
    """Names and attributes; of `self.a.b` the whole only."""
    if isinstance(node, (ast.Name, ast.Attribute)) and _is_plain(node):
        return [node]
    return [it for child in ast.iter_child_nodes(node) for it in _in_order(child)]


def _is_plain(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) or isinstance(node, ast.Attribute) and _is_plain(node.value)


def _value(node: ast.AST, variables: dict[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return variables.get(node.id)
    if not isinstance(node, ast.Attribute):
        return None
    owner = _value(node.value, variables)
    try:
        fields = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return None
    places = [fields, fields.get("_parameters"), fields.get("_buffers")] if isinstance(fields, dict) else []
    return next((it[node.attr] for it in places if isinstance(it, dict) and node.attr in it), None)


def _told(torch: Torch, value: Any) -> Named | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return {"value": value}
    members = list(value) if isinstance(value, (list, tuple)) and value else []
    first = members[0] if members else value
    if not isinstance(first, torch.Tensor):
        return None
    try:
        shape = [int(it) for it in first.shape]
    except (RuntimeError, NotImplementedError, ValueError):
        return None  # It has no shape: a nested tensor, a parameter of a lazy module.
    return {"shape": shape, "type": str(first.dtype).removeprefix("torch."), "members": len(members) or None}
