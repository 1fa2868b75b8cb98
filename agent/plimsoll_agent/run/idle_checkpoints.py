"""Which modules checkpoint in training mode only: by the flag that transformers sets, or by the text of a `forward` of the user's own, where a call of
`checkpoint` is guarded by `self.training`. A guard that asks for anything else than switches of the module is not judged.
"""

from __future__ import annotations

import ast
import functools
from typing import TYPE_CHECKING

from plimsoll_agent import source
from plimsoll_agent.run import frames

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Module

_CALLS = {"checkpoint", "checkpoint_sequential"}


def is_idle(module: Module) -> bool:
    """Whether it is in evaluation mode, and would checkpoint in training mode."""
    if module.training:
        return False
    if getattr(module, "gradient_checkpointing", None) is True:
        return True
    return any(all(vars(module).get(name) for name in guard) for guard in _guards(type(module)))  # type: ignore[arg-type]


@functools.lru_cache(maxsize=1024)
def _guards(kind: type) -> list[tuple[str, ...]]:
    """Of each call of `checkpoint` that `self.training` guards, the other switches that have to be on."""
    code = getattr(kind.__dict__.get("forward"), "__code__", None)
    if code is None or not frames.is_users(code.co_filename):
        return []
    found = []
    for function in ast.walk(source.tree(code.co_filename)):
        if isinstance(function, ast.FunctionDef) and function.name == "forward" and function.lineno <= code.co_firstlineno <= (function.end_lineno or 0):
            for it in ast.walk(function):
                if isinstance(it, (ast.If, ast.IfExp)) and _checkpoints(it.body if isinstance(it.body, list) else [it.body]):
                    switches = _switches(it.test)
                    if switches is not None and "training" in switches:
                        found.append(tuple(name for name in switches if name != "training"))
    return found


def _checkpoints(body: list[ast.stmt] | list[ast.expr]) -> bool:
    calls = [it.func for part in body for it in ast.walk(part) if isinstance(it, ast.Call)]
    return any((it.attr if isinstance(it, ast.Attribute) else getattr(it, "id", "")) in _CALLS for it in calls)


def _switches(test: ast.expr) -> list[str] | None:
    """The attributes of `self` that all have to be true; None if it asks for more."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    names = [it.attr for it in parts if isinstance(it, ast.Attribute) and isinstance(it.value, ast.Name) and it.value.id == "self"]
    # The pass wants gradients where this is asked.
    others = [it for it in parts if not isinstance(it, ast.Attribute) and "is_grad_enabled" not in ast.unparse(it)]
    return names if not others else None
