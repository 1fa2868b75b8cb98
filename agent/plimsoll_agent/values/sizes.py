"""Decides whether a number that a line reads from the device becomes a size: a bound of a slice, an argument of `zeros`, `view`, `split`.

Read from the text of the script, so that the report can say first which numbers decide what is predicted. A count that is added up and
printed is none. Followed are names within a function, and what a function returns to its callers in the same file.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from plimsoll_agent import source
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZED = frozenset(
    ["zeros", "ones", "empty", "full", "rand", "randn", "randint", "randperm", "arange", "linspace", "eye", "new_zeros", "new_ones", "new_empty", "new_full", "resize_", "view", "reshape", "unflatten", "expand", "repeat", "repeat_interleave", "tile", "split", "split_with_sizes", "chunk", "tensor_split", "narrow", "topk", "unfold", "pad", "range"]
)
"""What makes a tensor as large as an argument says, or turns a loop as often."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@guarded
def becomes_size(file: str, line: Any) -> bool:
    """Whether what that line of that file reads becomes a size, as far as its text shows."""
    return _Reader(source.tree(file)).reads(line)


class _Reader:
    def __init__(self, tree: Any) -> None:
        self._tree = tree
        self._seen: set[Any] = set()

    def reads(self, line: Any) -> bool:
        """Whether the statement at `line` reads a size."""
        scopes = [it for it in ast.walk(self._tree) if isinstance(it, _FUNCTIONS) and it.lineno <= line <= it.end_lineno]
        scope = max(scopes, key=lambda it: it.lineno, default=self._tree)
        statements = [it for it in ast.walk(scope) if isinstance(it, ast.stmt) and it is not scope and it.lineno <= line <= it.end_lineno]
        statement = max(statements, key=lambda it: it.lineno, default=None)
        if statement is None:
            return False
        return any(_may_read(it) for place in _sizes(statement) for it in ast.walk(place)) or self._goes_on(scope, statement)

    def _goes_on(self, scope: ast.AST, statement: Any) -> bool:
        """Whether what the statement made is a size later: a name in its scope, or what its function returns."""
        if isinstance(statement, ast.Return) and isinstance(scope, _FUNCTIONS):
            return self._returned(scope)
        names = _targets(statement)
        before = None
        while before != names:
            before = set(names)
            for it in ast.walk(scope):
                if isinstance(it, ast.stmt) and not isinstance(it, _FUNCTIONS) and _mentions(getattr(it, "value", None), names):
                    names |= _targets(it)
        if any(_mentions(place, names) for place in _sizes(scope)):
            return True
        returns = isinstance(scope, _FUNCTIONS) and any(isinstance(it, ast.Return) and _mentions(it.value, names, bare=True) for it in ast.walk(scope))
        return returns and self._returned(scope)

    def _returned(self, function: Any) -> bool:
        if function.name in self._seen:
            return False
        self._seen.add(function.name)
        for scope in [self._tree, *(it for it in ast.walk(self._tree) if isinstance(it, _FUNCTIONS))]:
            if any(_calls(it, function.name) for place in _sizes(scope) for it in ast.walk(place)):
                return True
            for it in ast.walk(scope):
                if isinstance(it, (ast.Assign, ast.AnnAssign, ast.Return)) and it.value is not None and any(_calls(of, function.name) for of in ast.walk(it.value)):
                    if self._goes_on(scope, it):
                        return True
        return False


def _may_read(node: ast.AST) -> bool:
    """Whether it is a call that may read something of the device. The words of the command are on the host: `int(sys.argv[1])`."""
    return isinstance(node, ast.Call) and not any(
        isinstance(it, ast.Attribute) and it.attr in ("argv", "environ") or isinstance(it, ast.Name) and it.id in ("argv", "environ") for it in ast.walk(node)
    )


def _sizes(scope: ast.AST) -> Iterator[ast.expr]:
    """The expressions in it that say how large something is."""
    for it in ast.walk(scope):
        if isinstance(it, ast.Slice):
            yield from (bound for bound in (it.lower, it.upper, it.step) if bound is not None)
        elif isinstance(it, ast.Call) and _name(it.func) in SIZED:
            yield from (*it.args, *(word.value for word in it.keywords))


def _name(function: Any) -> Any:
    return getattr(function, "attr", None) or getattr(function, "id", None)


def _calls(it: ast.AST, name: str) -> bool:
    return isinstance(it, ast.Call) and _name(it.func) == name


def _targets(statement: Any) -> set[str]:
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
    parts = [part for it in targets if it is not None for part in (it.elts if isinstance(it, (ast.Tuple, ast.List)) else [it])]
    return {ast.unparse(it) for it in parts if isinstance(it, (ast.Name, ast.Attribute))}


def _mentions(expression: ast.AST | None, names: Any, bare: bool = False) -> bool:
    """Whether one of the names is in it; if `bare`, by itself or in a row of what is returned."""
    if expression is None:
        return False
    if bare:
        return any(ast.unparse(it) in names for it in getattr(expression, "elts", [expression]))
    return any(isinstance(it, (ast.Name, ast.Attribute)) and ast.unparse(it) in names for it in ast.walk(expression))
