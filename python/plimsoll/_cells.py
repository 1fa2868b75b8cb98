"""Runs cells of a notebook in a process of their own: `python -m plimsoll._cells CELLS END`.

`%%predict` and `%%fit` write CELLS; END gets how the cells ended.
"""

from __future__ import annotations

import ast
import json
import linecache
import os
import sys
import traceback
import types
from typing import Any


class _NoNotebook:
    """What `get_ipython()` returns there: magics and commands of the shell do nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def _run(path: str, end: str) -> None:
    with open(path, encoding="utf-8") as file:
        cells = json.load(file)
    try:
        _run_cells(cells)
    except Exception as error:
        # The first two frames are those of this file.
        own = error.__traceback__ and error.__traceback__.tb_next and error.__traceback__.tb_next.tb_next
        at = traceback.extract_tb(own)
        place = next((f" ({it.filename}, line {it.lineno})" for it in reversed(at) if it.filename.startswith("In[")), "")
        _write(end, f"{type(error).__name__}: {error}{place}", "".join(traceback.format_exception(type(error), error, own)))
        raise
    _write(end, None, None)


def _write(end: str, error: str | None, shown: str | None) -> None:
    torch: Any = sys.modules.get("torch")
    has_cuda = torch is not None and torch.cuda.is_initialized()
    with open(end + ".part", "w", encoding="utf-8") as file:
        json.dump({"error": error, "traceback": shown, "has_torch": torch is not None, "has_cuda": has_cuda}, file)
    os.replace(end + ".part", end)


def _run_cells(cells: list[tuple[str, str, list[int]]]) -> None:
    # The module of a notebook's classes is `__main__`.
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    namespace: dict[str, Any] = main.__dict__
    namespace["get_ipython"] = _NoNotebook
    namespace["plimsoll"] = sys.modules["plimsoll"]
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
    _run(sys.argv[1], sys.argv[2])
