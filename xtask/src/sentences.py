"""The strings of the Python files below folders, without docstrings; `{}` stands for what an f-string fills in."""

import ast
import pathlib
import sys


def text(node):
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def strings(node):
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if isinstance(node, (ast.JoinedStr, ast.Constant)):
        yield text(node)
        return
    for child in ast.iter_child_nodes(node):
        yield from strings(child)


for folder in sys.argv[1:]:
    for path in sorted(pathlib.Path(folder).rglob("*.py")):
        print("==", path)
        for string in strings(ast.parse(path.read_text())):
            print(" ".join(string.split()))
