"""Finds the imports of a file of the user, and whether they come before all other statements. Reads the file, and never runs it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

TYPE_CHECKING = False  # As typing has it, which is not imported for this.
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_HARMLESS = ("logging", "warnings")
"""What is called of these changes nothing that an import could see."""
_LOOKS = ("copy", "get", "items", "keys", "values")
_CHANGES_IMPORTS = ("dotenv", "putenv", "unsetenv", "load_dotenv")


@dataclass
class Statements:
    """(module, names taken from it) of each absolute import of a file."""

    first: list[ast.stmt] = field(default_factory=list)
    """Those that run when the file does, and"""
    later: list[ast.stmt] = field(default_factory=list)
    """those that may."""
    imports_first: bool = True
    """Whether nothing of the file's own comes before one of the first, and nothing in it changes the environment, which imports
    and C libraries read."""
    speaks_of_compile: bool = False
    """Whether it seems to use `torch.compile`."""
    is_quiet: bool = True
    """Whether it only imports and defines: what is imported after it cannot tell that it was there."""


def of(path: str) -> Any:
    """Of the file at `path`; nothing of one that cannot be read."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):  # The last two: too deep.
        return Statements(imports_first=False, is_quiet=False)
    found = Statements()
    for it in _at_once(tree.body):
        imports = list(_imports(it))
        if isinstance(it, (ast.Import, ast.ImportFrom)):
            found.first += imports
            # Of a package of the user's own, what it imports is not looked at.
            found.imports_first = found.imports_first and found.is_quiet and not getattr(it, "level", 0)
        else:
            found.later += imports
            found.is_quiet = found.is_quiet and (_is_quiet(it) or it is tree.body[-1] and _is_for_the_main_program(it))
    found.imports_first = found.imports_first and not _changes_the_environment(tree)
    found.speaks_of_compile = any(
        isinstance(it, ast.Attribute) and it.attr == "compile" and ast.unparse(it) != "re.compile" for it in ast.walk(tree)
    )
    return found


def _at_once(body: Any) -> Iterator[Any]:
    """The statements that always run when the file runs."""
    for it in body:
        if isinstance(it, ast.Try):
            yield from _at_once(it.body)
            for handler in it.handlers:
                yield from handler.body
            yield from it.orelse + it.finalbody
        else:
            yield it


def _imports(statement: Any) -> Iterator[Any]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, ()
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, tuple(alias.name for alias in node.names)


def _is_quiet(statement: Any) -> bool:
    """Whether an import that follows cannot tell that it was there: a definition, a name for a value, a filter of warnings."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Pass)):
        return True
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return all(isinstance(it, ast.Name) for it in targets) and not _calls(statement)
    if isinstance(statement, ast.Expr):
        value = statement.value
        return isinstance(value, ast.Constant) or isinstance(value, ast.Call) and _is_harmless(value)
    return False


def _is_for_the_main_program(statement: Any) -> bool:
    return isinstance(statement, ast.If) and ast.unparse(statement.test) == "__name__ == '__main__'"


def _calls(statement: Any) -> bool:
    return any(isinstance(it, ast.Call) and not _is_harmless(it) for it in ast.walk(statement))


def _is_harmless(call: ast.Call) -> bool:
    function = ast.unparse(call.func)
    return function.split(".")[0] in _HARMLESS or function in ("sys.path.append", "sys.path.insert", "Path", "pathlib.Path")


def _changes_the_environment(tree: Any) -> bool:
    """Whether anything is done with `os.environ`, or with `sys.modules`, but to look."""
    looks = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LOOKS:
            looks.add(node.func.value)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            looks.add(node.value)
        elif isinstance(node, ast.Compare):
            looks.update(node.comparators)
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            if node.name.split(".")[0] in _CHANGES_IMPORTS:
                return True
        elif isinstance(node, (ast.Attribute, ast.Name)):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            is_table = name == "environ" or name == "modules" and ast.unparse(node) == "sys.modules"
            if name in _CHANGES_IMPORTS or is_table and node not in looks:
                return True
    return False
