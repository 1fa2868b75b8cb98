"""Lines of a script that are written in a way that takes far more memory than another form of the same: read from its text, of which nothing runs.

Whether such a line matters, the recording says: how much of what was there it made.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from plimsoll_agent import source
from plimsoll_agent.run import extent, frames
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plimsoll_agent.kinds import Named

MOST = 64
"""Of lines that are named, and of files that are read."""
_OF_PAIRS = {"cosine_similarity", "pairwise_distance"}
_SUMS = {"sum", "mean", "norm", "vector_norm", "prod"}
_FILLED = {"zeros", "ones", "empty", "full", "eye", "rand", "randn", "new_zeros", "new_ones", "new_empty", "new_full"}
_OF_TWO = {"max", "min", "maximum", "minimum"}
_MAKES_DENSE = {"to_dense", "todense", "to_dense_adj"}


@guarded
def lines() -> list[Named]:
    """Those in the files of the script: where each statement begins and ends, and what it is."""
    files = [file for _, file in frames.modules_of_users()]
    found = ({"file": file, "line": first, "last": last, "form": form} for file in files[:MOST] for first, last, form in of_text(source.tree(file)))
    return [it for it, _ in zip(found, range(MOST))]


def of_text(tree: ast.AST) -> Iterator[tuple[int, int, str]]:
    nodes = list(ast.walk(tree))
    summed = {id(part) for it in nodes if isinstance(it, ast.Call) and extent.name_of(it.func) in _SUMS for part in ast.walk(it)}
    names = {it.id for it in nodes if isinstance(it, ast.Name) and id(it) in summed}
    for it in nodes:
        if isinstance(it, extent.STATEMENTS):
            targets = {target.id for target in getattr(it, "targets", ()) if isinstance(target, ast.Name)}
            forms = (_form(part, id(part) in summed or bool(targets & names)) for part in ast.walk(it))
            form = next(filter(None, forms), None)
            if form is not None:
                yield it.lineno, it.end_lineno or it.lineno, form


def _form(node: ast.AST, is_summed: bool) -> str | None:
    """`is_summed`: over a dimension, afterwards."""
    if isinstance(node, ast.Call):
        name = extent.name_of(node.func)
        if _says(node, "vectorize", True):
            return "vectorized"
        if name == "svd" and _is_full(node):
            return "full-matrices"
        if name in _MAKES_DENSE:
            return "made-dense"
        if name in _FILLED and _is_square(node):
            return "square-table"
        if name == "tile" or name == "repeat" and isinstance(node.func, ast.Attribute) and len(node.args) > 1:
            return "copies-by-repeat"
        widened = sum(map(_is_widened, node.args))
        # Corners of two lists of boxes, one of them with another dimension.
        is_of_two = name in _OF_TWO and len(node.args) == 2 and widened and not isinstance(node.args[1], ast.Constant)
        if is_of_two or name in _OF_PAIRS and widened == 2:
            return "all-pairs"
        return "copies-in-product" if name == "matmul" and widened == 1 else None
    if not isinstance(node, ast.BinOp):
        return None
    widened = _is_widened(node.left) + _is_widened(node.right)
    if isinstance(node.op, ast.MatMult) and widened == 1:
        return "copies-in-product"
    return "all-pairs" if isinstance(node.op, (ast.Sub, ast.Mult)) and widened == 2 and is_summed else None


def _says(call: ast.Call, word: str, value: bool) -> bool:
    return any(it.arg == word and isinstance(it.value, ast.Constant) and it.value.value is value for it in call.keywords)


def _is_full(call: ast.Call) -> bool:
    """`torch.linalg.svd(x)`, `torch.svd(x, some=False)`: square matrices, too."""
    is_of_linalg = isinstance(call.func, ast.Attribute) and extent.name_of(call.func.value) == "linalg"
    is_said = len(call.args) > 1 or any(it.arg == "full_matrices" for it in call.keywords)
    return _says(call, "full_matrices", True) or _says(call, "some", False) or is_of_linalg and not is_said


def _is_square(call: ast.Call) -> bool:
    """`torch.zeros(n, n)`, `torch.full((n, n), x)`, `torch.eye(n)`: one side as long as the other, and no number that stands there."""
    sides = call.args[0].elts if call.args and isinstance(call.args[0], (ast.Tuple, ast.List)) else call.args
    if extent.name_of(call.func) == "eye" and len(sides) == 1:
        return not isinstance(sides[0], ast.Constant)
    shown = [ast.dump(it) for it in sides if not isinstance(it, ast.Constant)]
    return len(shown) != len(set(shown))


def _is_widened(node: ast.AST) -> bool:
    """`x.unsqueeze(1)`, `x[:, None]`."""
    if isinstance(node, ast.Call):
        return extent.name_of(node.func) == "unsqueeze"
    parts: list[Any] = getattr(node.slice, "elts", [node.slice]) if isinstance(node, ast.Subscript) else []
    return any(isinstance(it, ast.Constant) and it.value is None for it in parts)
