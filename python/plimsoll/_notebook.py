"""`%load_ext plimsoll`: cells that are predicted or watched, and a word about what a failed one still holds."""

from __future__ import annotations

import argparse
import ast
import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

from plimsoll import _binary
from plimsoll._binary import PlimsollError
from plimsoll._held import held
from plimsoll._predict import predicted
from plimsoll._results import Prediction
from plimsoll._slice import Cell, needed
from plimsoll._watch import Watch


class _Options(argparse.ArgumentParser):
    """Says what is wrong as an error of ours, and does not end the kernel."""

    def error(self, message: str) -> NoReturn:
        raise PlimsollError(f"{self.prog}: {message}; {self.format_usage().strip()}")


def _predict_options() -> _Options:
    options = _Options(prog="%%predict", add_help=False)
    options.add_argument("--gpu")
    options.add_argument("--memory")
    options.add_argument("--max")
    options.add_argument("--steps")
    options.add_argument("--until-exit", action="store_true")
    options.add_argument("--to", metavar="NAME")
    return options


def _watch_options() -> _Options:
    options = _Options(prog="%%watch", add_help=False)
    options.add_argument("--label")
    options.add_argument("--expected")
    options.add_argument("--alarms")
    options.add_argument("--on-alarm")
    options.add_argument("--webhook")
    options.add_argument("--to", metavar="NAME")
    return options


class _Magics:
    """What the extension adds to one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def predict(self, line: str, cell: str) -> None:
        """`%%predict [--gpu CARD] [--memory SIZE] [--max SIZE] [--steps N] [--until-exit] [--to NAME]`: would this cell fit?

        The cell is not run here. It runs in a process of its own on the phantom, with what it needs of the cells that ran before.
        """
        told = _predict_options().parse_args(shlex.split(line))
        own = f"In[{self._number()}]"
        # The first line of the cell is ours.
        cells = needed(self._earlier(), (own, "\n" + self._plain(cell)))
        options: list[str] = []
        for name in ("gpu", "memory", "max", "steps"):
            if getattr(told, name) is not None:
                options += [f"--{name}", getattr(told, name)]
        if told.until_exit:
            options.append("--until-exit")
        with tempfile.TemporaryDirectory(prefix="plimsoll-") as folder:
            here = Path(folder)
            (here / "cells.json").write_text(json.dumps(cells), encoding="utf-8")
            words = [*_binary.module("plimsoll._cells"), str(here / "cells.json")]
            answer = predicted(options, words, here / "report.json", here / "run.zip")
        print(_told(answer))
        before = [name for name, _, _ in cells[:-1]]
        if before:
            print(f"with what it needs of {', '.join(before)}")
        if told.to:
            self._shell.user_ns[told.to] = answer

    def watch(self, line: str, cell: str) -> Any:
        """`%%watch [--label NAME] [--expected FILE|SIZE] [--alarms FILE] [--on-alarm COMMAND] [--webhook URL] [--to NAME]`: runs the
        cell here, and says once what goes wrong with its memory."""
        told = _watch_options().parse_args(shlex.split(line))
        watch = Watch(
            label=told.label or "notebook",
            expected=told.expected,
            alarms=told.alarms,
            on_alarm=told.on_alarm,
            webhook=told.webhook,
            place=self._place,
        )
        if told.to:
            self._shell.user_ns[told.to] = watch
        with watch:
            return self._run(cell)

    def _run(self, cell: str) -> Any:
        """As IPython runs a cell: the value of its last line is what the cell shows."""
        # The first line of the cell is ours.
        text = "\n" + self._plain(cell)
        name = self._shell.compile.cache(text, self._number(), raw_code=text)
        tree = self._shell.compile.ast_parse(text, filename=name)
        last: ast.expr | None = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not cell.rstrip().endswith(";"):
            last = tree.body.pop().value
        namespace = self._shell.user_ns
        exec(self._shell.compile(tree, name, "exec"), namespace)
        if last is None:
            return None
        return eval(self._shell.compile(ast.Expression(last), name, "eval"), namespace)

    def _earlier(self) -> list[Cell]:
        """The cells that ran before, as plain Python; of ours, what was watched."""
        found: list[Cell] = []
        texts = list(self._shell.history_manager.input_hist_raw)
        for number, text in enumerate(texts[:-1]):
            if text.lstrip().startswith("%%predict"):
                continue
            if text.lstrip().startswith("%%watch"):
                text = text.lstrip().partition("\n")[2]
            if text.strip():
                found.append((f"In[{number}]", self._plain(text)))
        return found

    def _number(self) -> int:
        """That of the cell that runs now."""
        return len(self._shell.history_manager.input_hist_raw) - 1

    def _plain(self, text: str) -> str:
        plain: str = self._shell.transform_cell(text)
        return plain

    def _place(self, filename: str) -> str:
        number = getattr(self._shell.compile, "_filename_map", {}).get(filename)
        return filename if number is None else f"In[{number}]"

    def after(self, result: Any) -> None:
        """A cell has ended: if memory ran out in it, who holds what is said."""
        torch: Any = sys.modules.get("torch")
        error = getattr(result, "error_in_exec", None)
        if torch is None or not isinstance(error, torch.OutOfMemoryError):
            return
        found = held()
        if found.errors or found.outputs:
            print(f"plimsoll: {found}", file=sys.stderr)


_loaded: dict[int, _Magics] = {}


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext plimsoll`."""
    magics = _loaded[id(shell)] = _Magics(shell)
    shell.register_magic_function(magics.predict, "cell", "predict")
    shell.register_magic_function(magics.watch, "cell", "watch")
    shell.events.register("post_run_cell", magics.after)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext plimsoll`."""
    magics = _loaded.pop(id(shell), None)
    if magics is not None:
        shell.events.unregister("post_run_cell", magics.after)
        for name in ("predict", "watch"):
            shell.magics_manager.magics["cell"].pop(name, None)


def _told(answer: Prediction) -> str:
    """What the cell shows: the answer, and the lines that hold most of it."""
    most = sorted(answer.lines, key=lambda it: -it.size)[:5]
    lines = [str(answer)]
    lines += [str(it) for it in most]
    return "\n".join(lines)
