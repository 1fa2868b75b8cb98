"""Runs cells of a notebook in a process of their own: `python -m plimsoll._cells FILE`, which `%%predict` wrote."""

from __future__ import annotations

import ast
import json
import linecache
import sys
import types
from typing import Any


class _NoNotebook:
    """What `get_ipython()` gives there: magics and commands of the shell do nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def _run(path: str) -> None:
    with open(path, encoding="utf-8") as file:
        cells = json.load(file)
    # Classes of the notebook say that they are of `__main__`.
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    namespace: dict[str, Any] = main.__dict__
    namespace["get_ipython"] = _NoNotebook
    namespace["display"] = lambda *args, **kwargs: None
    sys.argv = [sys.argv[0]]
    sys.path.insert(0, "")
    for name, text, statements in cells:
        # Tracebacks and reports show its lines.
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        tree = ast.parse(text, name)
        tree.body = [tree.body[index] for index in statements]
        exec(compile(tree, name, "exec"), namespace)


if __name__ == "__main__":
    _run(sys.argv[1])
