"""The text of a file as a tree, parsed once for all who look something up in it: a loop, a condition, a call. Nothing of it runs.

It is read through `linecache`, so cells of a notebook have a tree, too.
"""

from __future__ import annotations

import ast
import functools
import linecache
import os

TYPE_CHECKING = False  # As typing has it, which is not imported for this.
if TYPE_CHECKING:
    from types import CodeType

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


@functools.lru_cache(maxsize=32)
def of_function(code: CodeType) -> ast.Module:
    """The tree of the text of a function alone, in the lines of its file: a library's file is long, and a run has no other question to it. That of
    the file where the text alone is no function."""
    if code.co_name.isidentifier():
        text = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 : _last_line(code)]
        # As it stands in the file, with the text around it as one line.
        around = "if 1:\n" if text and text[0][:1].isspace() else "\n"
        try:
            return ast.increment_lineno(ast.parse(around + "".join(text)), code.co_firstlineno - 2)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
    return tree(code.co_filename)


def _last_line(code: CodeType) -> int:
    """The last line that it has something of, the functions in it included."""
    positions = getattr(code, "co_positions", None)  # Since Python 3.11.
    own = [end for _, end, _, _ in positions()] if positions is not None else [line for _, _, line in code.co_lines()]
    return max([line or 0 for line in own] + [_last_line(it) for it in code.co_consts if isinstance(it, type(code))], default=0)
