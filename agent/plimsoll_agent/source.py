"""The text of a file as a tree, parsed once for all who look something up in it: a loop, a condition, a call. Nothing of it runs.

It is read through `linecache`, so cells of a notebook have a tree, too.
"""

from __future__ import annotations

import ast
import functools
import linecache
import os

MOST_BYTES = 1 << 20
"""Of a file that is read: a person writes no larger one."""


@functools.lru_cache(maxsize=32)
def tree(file: str) -> ast.Module:
    """Empty where there is no such text, it is no Python, or it is too large or nested too deep."""
    try:
        if os.path.exists(file) and MOST_BYTES < os.path.getsize(file):
            return ast.Module(body=[], type_ignores=[])
        return ast.parse("".join(linecache.getlines(file)))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])
