"""Which statements of earlier cells a cell needs, to run elsewhere.

A statement that binds a needed name is needed, with the names that it uses. So is a statement that changes a needed object in place
(`model.cuda()`, `data.append(x)`), except one that trains: a loop that calls `backward` or `step` is another training.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_TRAINS = {"backward", "step", "fit"}

Cell = tuple[str, str]
"""What it is called, such as `In[3]`, and its text as plain Python."""


def needed(earlier: Sequence[Cell], cell: Cell) -> list[tuple[str, str, list[int]]]:
    """Name, text and the top-level statements, by number, of each cell that is needed, and of `cell` itself, in their order.

    Raises:
        SyntaxError: `cell` is no Python.
    """
    own = ast.parse(cell[1])
    wanted = _wanted(own.body)
    kept: dict[int, list[int]] = {}
    statements: list[tuple[int, int, ast.stmt]] = []
    for number, (_, text) in enumerate(earlier):
        try:
            statements += [(number, index, it) for index, it in enumerate(ast.parse(text).body)]
        except SyntaxError:
            continue  # It never ran.
    # From the last to the first: a name is bound by the last statement that does, and what changes it may come after.
    for number, index, it in reversed(statements):
        bound = _bound(it)
        if isinstance(it, (ast.For, ast.While)) and _trains(it):
            continue
        if bound & wanted or "*" in bound:
            if not _keeps(it):
                wanted -= bound
            wanted |= _wanted_by(it)
        elif _changed(it) & wanted and not _trains(it):
            wanted |= _wanted_by(it)
        else:
            continue
        kept.setdefault(number, []).insert(0, index)
    found = [(earlier[number][0], earlier[number][1], kept[number]) for number in sorted(kept)]
    return [*found, (cell[0], cell[1], list(range(len(own.body))))]


def _wanted(body: Sequence[ast.stmt]) -> set[str]:
    """Names that statements read before they bind them."""
    wanted: set[str] = set()
    for it in reversed(body):
        if not _keeps(it):
            wanted -= _bound(it)
        wanted |= _wanted_by(it)
    return wanted


def _wanted_by(it: ast.stmt) -> set[str]:
    """Names that one statement reads before it binds them."""
    if isinstance(it, (ast.For, ast.AsyncFor)):
        return _used(it.iter) | (_wanted(it.body) - _stored([it.target])) | _wanted(it.orelse)
    if isinstance(it, (ast.While, ast.If)):
        return _used(it.test) | _wanted(it.body) | _wanted(it.orelse)
    if isinstance(it, (ast.With, ast.AsyncWith)):
        return {name for each in it.items for name in _used(each)} | (_wanted(it.body) - _stored(it.items))
    if isinstance(it, ast.Try):
        handled = {name for each in it.handlers for name in _wanted(each.body) - {each.name} | (_used(each.type) if each.type else set())}
        return _wanted(it.body) | handled | _wanted(it.orelse) | _wanted(it.finalbody)
    if isinstance(it, ast.AugAssign):
        return _used(it) | _stored([it.target])
    return _used(it)


def _stored(found: Sequence[ast.AST]) -> set[str]:
    return {node.id for each in found for node in ast.walk(each) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _bound(it: ast.stmt) -> set[str]:
    """Names that a statement binds at the top level."""
    if isinstance(it, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {it.name}
    found: set[str] = set()
    for node in _outside_functions(it):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
    return found


def _keeps(it: ast.stmt) -> bool:
    """Whether what was bound before may matter still: `x += 1`, a binding under a condition."""
    return isinstance(it, (ast.AugAssign, ast.If, ast.For, ast.While, ast.Try))


def _used(it: ast.AST) -> set[str]:
    """Names that are read, but for builtins and for those of a function's own."""
    return _read(it) - set(dir(builtins))


def _read(it: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in _outside_functions(it, itself=True):
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Load, ast.Del)):
            found.add(node.id)
        if node is not it and isinstance(node, _FUNCTIONS):
            found |= _read(node)
    if isinstance(it, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        arguments = it.args
        own = {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        own |= {each.arg for each in (arguments.vararg, arguments.kwarg) if each is not None}
        elsewhere: set[str] = set()
        for node in _outside_functions(it, itself=True):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                own.add(node.id)
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                elsewhere |= set(node.names)
        # What stands before the body is read outside: decorators, defaults, annotations.
        outside = {name for node in _before_the_body(it) for name in _read(node)}
        found = (found - (own - elsewhere)) | elsewhere | outside
    return found


def _before_the_body(it: ast.AST) -> list[ast.expr]:
    if isinstance(it, ast.Lambda):
        return [*it.args.defaults, *(each for each in it.args.kw_defaults if each is not None)]
    if isinstance(it, (ast.FunctionDef, ast.AsyncFunctionDef)):
        defaults = [*it.args.defaults, *(each for each in it.args.kw_defaults if each is not None)]
        return [*it.decorator_list, *defaults]
    return []


def _changed(it: ast.stmt) -> set[str]:
    """Names of what a statement may change in place: whose method is called, whose part is given a value, what a call is given."""
    found: set[str] = set()
    for node in _outside_functions(it):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found.add(_root(node.func) or "")
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            found.add(_root(node) or "")
    return found


def _trains(it: ast.stmt) -> bool:
    calls = (node.func for node in ast.walk(it) if isinstance(node, ast.Call))
    return any(isinstance(func, ast.Attribute) and func.attr in _TRAINS for func in calls)


def _root(node: ast.expr) -> str | None:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _outside_functions(it: ast.AST, *, itself: bool = False) -> list[ast.AST]:
    """All nodes but those in functions and classes; with `itself` those in `it`, though it may be one."""
    found, waiting = [], [it]
    while waiting:
        node = waiting.pop()
        found.append(node)
        if itself and node is it or not isinstance(node, _FUNCTIONS):
            waiting += ast.iter_child_nodes(node)
    return found
