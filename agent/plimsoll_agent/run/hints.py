"""Finds whether the text of a script mentions an evaluation or a checkpoint, and whether it counts steps or epochs.

`Hints` decides only whether the run waits for one, and what it waits for first: a word is enough. `mentions` is for the sentence about what was
not seen: the code has to have one. No number of a report depends on either.
"""

from __future__ import annotations

import ast
import os
import re
import sys

from plimsoll_agent import source
from plimsoll_agent.run import frames, trainers

LATER = re.compile(
    r"(?<![a-z])(eval|valid|val_|test_|inference_mode|no_grad|set_grad_enabled|checkpoint|save|state_dict|deepcopy)",
    re.IGNORECASE,
)
EVALUATION = re.compile(r"(?<![a-z])(eval|valid|val(?![a-z])|test|generate|sample)", re.IGNORECASE)
EVERY = re.compile(r"(\w+)[\s)]*(?:\+\s*\d+[\s)]*)?%")
"""As in `if (step + 1) % 100 == 0`."""
SETTING = re.compile(
    r"(?<![a-z])(?:eval|val|valid|validation|test)\w*_(?:step|interval|every|freq|iter)|_strategy\W{1,3}steps", re.IGNORECASE
)
NEAR = 3
"""So many lines from an `if` the evaluation stands below it."""

EVALUATION_STEP, CHECKPOINT = "evaluation", "checkpoint"

OF_EVALUATION = re.compile(r"_?(?:run_|do_)?(?:eval|valid|val(?![a-z])|test(?![a-z]))", re.IGNORECASE)
"""How the script's own functions begin that evaluate."""

DATA_OF_EVALUATION = re.compile(r"(?:^|_)(?:val|valid|validation|eval|test)(?:_|$)", re.IGNORECASE)
METHODS_OF_EVALUATION = {"evaluate", "validate", "generate"}
HOOKS_OF_EVALUATION = {"validation_step", "test_step"}
SAVE = {"save_pretrained", "save_checkpoint", "save_model", "save_state", "save_state_dict", "save_weights"}

MOST_FILES = 200
MOST_BYTES = 1 << 20


class Hints:
    """What the text of the user's files speaks of."""

    def __init__(self) -> None:
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        # A program that is no file may speak of anything.
        self.later = main is None or not os.path.isfile(main)
        """Of something that comes later."""
        self.by_steps = False
        """Of an evaluation every so many steps."""
        for file in sorted(_files(main))[:MOST_FILES]:
            self._read(file)

    def _read(self, file: str) -> None:
        try:
            if MOST_BYTES < os.path.getsize(file):
                return
            with open(file, encoding="utf-8", errors="replace") as text:
                lines = [line.partition("#")[0] for line in text]
        except OSError:
            return
        self.later = self.later or any(map(LATER.search, lines))
        self.by_steps = self.by_steps or any(map(SETTING.search, lines))
        for number, line in enumerate(lines):
            every = EVERY.search(line) if line.lstrip().startswith(("if", "elif")) else None
            if every is not None and "epoch" not in every.group(1).lower():
                near = lines[number : number + 1 + NEAR]
                self.by_steps = self.by_steps or any(map(EVALUATION.search, near))


def _files(main: str | None) -> set[str]:
    files = {main} if main is not None and os.path.isfile(main) else set()
    files.update(file for _, file in frames.modules_of_users() if file.endswith(".py") and os.path.isfile(file))
    return files


def mentions() -> list[str]:
    """What of an evaluation and a checkpoint the code of the user's files has, or a trainer is set to. Of a program that is no file, nothing is known."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    trees = [source.tree(file) for file in sorted(_files(main))[:MOST_FILES]]
    nodes = [it for tree in trees for it in ast.walk(tree)]
    functions = {it.name for it in nodes if isinstance(it, (ast.FunctionDef, ast.AsyncFunctionDef))}
    does = {name for name, is_on in trainers.settings() if is_on}
    has_evaluation = bool(does & {"eval_strategy", "evaluation_strategy"}) or any(_evaluates(it, functions) for it in nodes)
    saves = "save_strategy" in does or any(map(_saves, nodes))
    return [EVALUATION_STEP] * has_evaluation + [CHECKPOINT] * saves


def _evaluates(node: ast.AST, functions: set[str]) -> bool:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return node.name in HOOKS_OF_EVALUATION
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return any(map(DATA_OF_EVALUATION.search, _names(node.iter)))
    if not isinstance(node, ast.Call):
        return False
    name, is_method = _called(node), isinstance(node.func, ast.Attribute)
    if is_method and name == "eval":
        return not node.args
    if is_method and name == "train":
        return any(isinstance(it, ast.Constant) and it.value is False for it in node.args)
    return is_method and name in METHODS_OF_EVALUATION or name in functions and OF_EVALUATION.match(name) is not None


def _saves(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name, owner = _called(node), getattr(node.func, "value", None)
    return name in SAVE or name == "save" and isinstance(owner, ast.Name) and owner.id in ("torch", "dcp")


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _names(node: ast.AST) -> list[str]:
    """Variables, attributes, and keys: `loaders["val"]`."""
    found = [getattr(it, "id", getattr(it, "attr", getattr(it, "value", None))) for it in ast.walk(node)]
    return [it for it in found if isinstance(it, str)]
