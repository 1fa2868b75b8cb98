"""Functions that a trainer, of a library or of the script's own, calls with its epoch or its step, and that do not run while a step does:
callbacks, hooks of a module, what a loop calls by its name.

They are methods, and are found by the name that they have the number under. One counts if an object has it, and the script mentions it anywhere
else or a library's class has a method of this name. Functions that are called with the number directly are found where they are called.
"""

from __future__ import annotations

import ast
import gc
import linecache
import re
import types
from typing import TYPE_CHECKING, Any, NamedTuple

from plimsoll_agent import source
from plimsoll_agent.run import extent, frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import CodeType

MOST_OBJECTS = 16
"""Of a class that are looked at."""


class Hook(NamedTuple):
    """One of them."""

    name: str
    """What it calls the number,"""
    code: CodeType
    tree: Any
    known: Callable[[Any], Any]
    """and what its other expressions stand for."""


def of(names: set[str], now: int, read: set[CodeType], of_libraries: Iterable[Any]) -> Iterator[Hook]:
    """Those that have a number, which is `now`, under one of these `names`, but for code that was `read` already. `of_libraries`: callbacks that a
    library has itself."""
    for function, owner in [*_of_the_script(names), *_of_objects(of_libraries, names)]:
        code = function.__code__
        if code in read:
            continue
        variables, tree = extent.VariablesOfACall(function, owner), source.of_function(code)
        known = variables.value if frames.is_users(code.co_filename) else _Asking(variables, owner).value
        nodes = {ast.unparse(it): it for it in ast.walk(tree) if _last_name(it) in names}
        for name, node in nodes.items():
            value = known(node)
            if type(value) not in (int, float) or int(value) == now:
                yield Hook(name, code, tree, known)


def _of_the_script(names: set[str]) -> Iterator[tuple[Any, Any]]:
    """Methods with an object that has them."""
    text, objects = "", dict[type, list[Any]]()
    for module, file in frames.modules_of_users():
        text += "".join(linecache.getlines(file))
        classes = [it for it in vars(module).values() if isinstance(it, type) and it.__module__ == module.__name__]
        objects.update({it: [] for it in classes if any(_has(each, names) for each in vars(it).values())})
    for it in gc.get_objects() if objects else ():
        for kind in type(it).__mro__ if type(it).__module__ != "builtins" else ():
            if kind in objects and len(objects[kind]) < MOST_OBJECTS:
                objects[kind].append(it)
    for kind, its in objects.items():
        of_a_library = [base for base in kind.__mro__ if not _is_users(base) and base is not object]
        for name, method in vars(kind).items():
            if _has(method, names) and (any(name in vars(it) for it in of_a_library) or _mentions(text, name)):
                yield from ((method, it) for it in its)


def _of_objects(objects: Iterable[Any], names: set[str]) -> Iterator[tuple[Any, Any]]:
    for it in objects:
        for kind in type(it).__mro__:
            if not _is_users(kind):
                yield from ((method, it) for method in vars(kind).values() if _has(method, names))


def _is_users(kind: type) -> bool:
    return any(isinstance(it, types.FunctionType) and frames.is_users(it.__code__.co_filename) for it in vars(kind).values())


def _has(function: Any, names: set[str]) -> bool:
    if not isinstance(function, types.FunctionType):
        return False
    code = function.__code__
    return not names.isdisjoint((*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], *code.co_names))


def _mentions(text: str, name: str) -> bool:
    return re.search(r"(?<!def )\b%s\b" % re.escape(name), text) is not None


def _last_name(node: Any) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


class _Asking:
    """What expressions in a library's callback stand for. Its properties are asked: the script's are not, as that would run its code."""

    def __init__(self, variables: extent.Variables, owner: Any) -> None:
        self._variables, self._owner = variables, owner

    def value(self, node: Any) -> Any:
        value = self._variables.value(node)
        if value is None and isinstance(node, ast.Attribute) and self._variables.value(node.value) is self._owner:
            of_class = next((vars(it)[node.attr] for it in type(self._owner).__mro__ if node.attr in vars(it)), None)
            if isinstance(of_class, property) and of_class.fget is not None and not frames.is_users(of_class.fget.__code__.co_filename):
                return of_class.fget(self._owner)
        return value
