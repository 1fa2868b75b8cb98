"""What the agent reads of source texts. Needs no torch."""

import argparse
import ast
import sys
import types
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "agent"))

from plimsoll_agent import source


def functions(code):
    for it in code.co_consts:
        if isinstance(it, types.CodeType):
            yield it
            yield from functions(it)


def test_a_function_alone_has_the_tree_that_it_has_in_its_file():
    text = Path(argparse.__file__).read_text()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    inside = [it for it in ast.walk(ast.parse(text)) if isinstance(it, kinds)]
    in_file = {(it.name, min([it.lineno, *(of.lineno for of in it.decorator_list)])): ast.dump(it, include_attributes=True) for it in inside}
    codes = [it for it in functions(compile(text, argparse.__file__, "exec")) if (it.co_name, it.co_firstlineno) in in_file]
    assert 100 < len(codes)
    alone = 0
    for code in codes:
        tree = source.of_function(code)
        alone += len(tree.body) == 1
        found = [ast.dump(it, include_attributes=True) for it in ast.walk(tree) if isinstance(it, kinds)]
        assert in_file[code.co_name, code.co_firstlineno] in found, code
    # Of one that ends with what no instruction is of, the file is parsed.
    assert len(codes) * 0.9 < alone


def test_what_is_no_function_is_read_with_its_file():
    code = compile("found = [it for it in ()]", __file__, "exec")
    assert source.of_function(code) is source.tree(__file__)
