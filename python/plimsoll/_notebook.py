"""`%load_ext plimsoll`: cells that are predicted, made to fit or watched, and who still holds memory after one ran out of it."""

from __future__ import annotations

import argparse
import ast
import functools
import json
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from plimsoll import _binary
from plimsoll._binary import PlimsollError
from plimsoll._held import held
from plimsoll._predict import predicted
from plimsoll._results import Prediction
from plimsoll._sizes import Size
from plimsoll._slice import Cell, needed
from plimsoll._watch import Watch


class CellFailed(PlimsollError):
    """The cell failed in its own process. A notebook shows the traceback of the cell, and none of plimsoll's."""

    def __init__(self, text: str, traceback: str) -> None:
        """`text`: the error on one line. `traceback`: that of the cell."""
        super().__init__(text)
        self._traceback = traceback

    def _render_traceback_(self) -> list[str]:
        """IPython asks for this."""
        return self._traceback.splitlines()


class MagicFailed(PlimsollError):
    """A magic could not answer. A notebook shows the sentence, without a traceback: all of its lines would be plimsoll's."""

    def _render_traceback_(self) -> list[str]:
        """IPython asks for this."""
        return [f"plimsoll: {self}"]


def _in_a_sentence(magic: Callable[[_Magics, str, str], Any]) -> Callable[[_Magics, str, str], Any]:
    @functools.wraps(magic)
    def said(self: _Magics, line: str, cell: str) -> Any:
        try:
            return magic(self, line, cell)
        except CellFailed:
            raise
        except PlimsollError as error:
            raise MagicFailed(*error.args) from None

    return said


class _Options(argparse.ArgumentParser):
    """Reports wrong options as a `PlimsollError`, and does not end the kernel."""

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


def _fit_options() -> _Options:
    options = _Options(prog="%%fit", add_help=False)
    options.add_argument("--gpu")
    options.add_argument("--memory")
    options.add_argument("--plan")
    options.add_argument("--keep-numerics", action="store_true")
    options.add_argument("--until-exit", action="store_true")
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

    @_in_a_sentence
    def predict(self, line: str, cell: str) -> None:
        """`%%predict [--gpu CARD] [--memory SIZE] [--max SIZE] [--steps N] [--until-exit] [--to NAME]`: would this cell fit?

        The cell is not run here. It runs in a process of its own on the phantom, with what it needs of the cells that ran before.
        """
        given = _predict_options().parse_args(shlex.split(line))
        with tempfile.TemporaryDirectory(prefix="plimsoll-") as folder:
            carried = _Carried(Path(folder), self._needed(cell))
            options = [*carried.options, *_words(given, ("gpu", "memory", "max", "steps"), ("until_exit",))]
            answer = predicted(options, carried.command, carried.folder / "report.json", carried.folder / "run.zip", carried.raise_its_error)
        print(_shown(answer))
        if not answer.fits and answer.growth is None:
            print(" ".join(["to find what makes it fit:  %%fit", *_words(given, (), ("until_exit",)), "--gpu", answer.gpu, *_words(given, ("memory",))]))
        carried.print_what_it_needs()
        if given.to:
            self._shell.user_ns[given.to] = answer

    @_in_a_sentence
    def fit(self, line: str, cell: str) -> None:
        """`%%fit --gpu CARD [--memory SIZE] [--plan FILE] [--keep-numerics] [--until-exit]`: what makes this cell fit?

        The cell is not run here: each candidate runs in a process of its own on the phantom, as `plimsoll fit` does it.
        """
        given = _fit_options().parse_args(shlex.split(line))
        with tempfile.TemporaryDirectory(prefix="plimsoll-") as folder:
            carried = _Carried(Path(folder), self._needed(cell))
            plan = Path(given.plan).absolute() if given.plan else carried.folder / "plan.toml"
            options = ["--json", str(carried.folder / "fit.json"), "--plan", str(plan)]
            options += [*carried.options, *_words(given, ("gpu", "memory"), ("keep_numerics", "until_exit"))]
            ran = _binary.run(["fit", *options, "--", *carried.command])
            answer = carried.folder / "fit.json"
            if not answer.exists() or not answer.stat().st_size:
                carried.raise_its_error()
                raise PlimsollError(_binary.said(ran.stderr).rpartition("\n")[2] or f"plimsoll fit ended with exit code {ran.returncode}")
            print("\n".join(_proposed(json.loads(answer.read_text(encoding="utf-8")))))
            if given.plan and plan.is_file():
                print(f"to train with the first plan:  plimsoll.fit(plan={given.plan!r})(FUNCTION)(ARGUMENTS)")
            elif plan.is_file():
                print(f"to store the first plan:  %%fit {line.strip()} --plan plan.toml")
        carried.print_what_it_needs()

    def _needed(self, cell: str) -> list[tuple[str, str, list[int]]]:
        # The first line of the cell is the magic.
        return needed(self._earlier(), (f"In[{self._number()}]", "\n" + self._plain(cell)))

    @_in_a_sentence
    def watch(self, line: str, cell: str) -> Any:
        """`%%watch [--label NAME] [--expected FILE|SIZE] [--alarms FILE] [--on-alarm COMMAND] [--webhook URL] [--to NAME]`: runs the
        cell here, and reports each problem with its memory once."""
        given = _watch_options().parse_args(shlex.split(line))
        watch = Watch(
            label=given.label or "notebook",
            expected=given.expected,
            alarms=given.alarms,
            on_alarm=given.on_alarm,
            webhook=given.webhook,
            place=self._place,
        )
        if given.to:
            self._shell.user_ns[given.to] = watch
        with watch:
            return self._run(cell)

    def _run(self, cell: str) -> Any:
        """As IPython runs a cell: the value of its last line is what the cell shows."""
        # The first line of the cell is the magic.
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
        """The cells that ran before, as plain Python. A cell under `%%watch` ran; one under `%%predict` or `%%fit` did not."""
        found: list[Cell] = []
        texts = list(self._shell.history_manager.input_hist_raw)
        for number, text in enumerate(texts[:-1]):
            if text.lstrip().startswith(("%%predict", "%%fit")):
                continue
            if text.lstrip().startswith("%%watch"):
                text = text.lstrip().partition("\n")[2]
            if text.strip():
                found.append((f"In[{number}]", self._plain(text)))
        return found

    def _number(self) -> int:
        """The number of the cell that runs now."""
        return len(self._shell.history_manager.input_hist_raw) - 1

    def _plain(self, text: str) -> str:
        plain: str = self._shell.transform_cell(text)
        return plain

    def _place(self, filename: str) -> str:
        number = getattr(self._shell.compile, "_filename_map", {}).get(filename)
        return filename if number is None else f"In[{number}]"

    def after(self, result: Any) -> None:
        """A cell has ended: if it ran out of memory, prints who holds memory now."""
        torch: Any = sys.modules.get("torch")
        error = getattr(result, "error_in_exec", None)
        if torch is None or not isinstance(error, torch.OutOfMemoryError):
            return
        found = held()
        if found.errors or found.outputs:
            print(f"plimsoll: {found}", file=sys.stderr)


class _Carried:
    """Cells as a command for plimsoll, and what became of them."""

    def __init__(self, folder: Path, cells: list[tuple[str, str, list[int]]]) -> None:
        self.folder = folder
        self._before = [name for name, _, _ in cells[:-1]]
        (folder / "cells.json").write_text(json.dumps(cells), encoding="utf-8")
        answers = folder / "answers"
        answers.mkdir()
        self._end = answers / "end.json"
        self.options = ["--through", str(answers)]
        """Other files that the cells write are thrown away."""
        self.command = [*_binary.module("plimsoll._cells"), str(folder / "cells.json"), str(self._end)]

    def raise_its_error(self) -> None:
        """Raises what the cells raised, or that they use no GPU."""
        if not self._end.exists():
            return
        end = json.loads(self._end.read_text(encoding="utf-8"))
        if end["error"] is not None:
            raise CellFailed(end["error"], end["traceback"])
        if not end["has_torch"]:
            raise PlimsollError(f"{self._cells()} without importing torch, so it uses no GPU memory; put the magic on the cell that trains")
        if not end["has_cuda"]:
            raise PlimsollError(f'{self._cells()} without using the GPU; does it move its model to "cuda"?')

    def _cells(self) -> str:
        return f"this cell, with what it needs of {', '.join(self._before)}, ended" if self._before else "this cell ended"

    def print_what_it_needs(self) -> None:
        """Which other cells the answer includes."""
        if self._before:
            print(f"with what it needs of {', '.join(self._before)}")


def _words(given: argparse.Namespace, values: Sequence[str], switches: Sequence[str] = ()) -> list[str]:
    """These options as they were given."""
    words: list[str] = []
    for name in values:
        if getattr(given, name) is not None:
            words += [f"--{name}", getattr(given, name)]
    return words + ["--" + name.replace("_", "-") for name in switches if getattr(given, name)]


_loaded: dict[int, _Magics] = {}


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext plimsoll`: the magics, and the name `plimsoll` unless the notebook has it already."""
    magics = _loaded[id(shell)] = _Magics(shell)
    shell.register_magic_function(magics.predict, "cell", "predict")
    shell.register_magic_function(magics.fit, "cell", "fit")
    shell.register_magic_function(magics.watch, "cell", "watch")
    if "plimsoll" not in shell.user_ns:
        shell.push({"plimsoll": sys.modules["plimsoll"]}, interactive=False)
    shell.events.register("post_run_cell", magics.after)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext plimsoll`."""
    magics = _loaded.pop(id(shell), None)
    if magics is not None:
        shell.events.unregister("post_run_cell", magics.after)
        for name in ("predict", "fit", "watch"):
            shell.magics_manager.magics["cell"].pop(name, None)


def _shown(answer: Prediction) -> str:
    """The answer, and the lines that hold most of it."""
    most = sorted(answer.lines, key=lambda line: -line.size)[:5]
    return "\n".join([str(answer), *map(str, most)])


def _proposed(answer: dict[str, Any]) -> list[str]:
    """What `plimsoll fit --json` found, without its commands, which are for a script."""
    limit = Size(answer["limit"]["bytes"])
    card = f"{answer['gpu']} ({limit})"
    without = Size(answer["as_it_is"]["needs_bytes"])
    outcome = answer["outcome"]
    so_far = [answer["so_far"]] if answer.get("so_far") else []
    fits = "fits so far" if so_far else "fits"
    if outcome == "fits" or so_far and not answer["plans"]:
        return [f"{fits} {card} without changes: {without} {'for what was run' if so_far else 'to be safe'}", *so_far]
    if outcome == "grows":
        return [f"grows {Size(answer['growth_bytes_per_step'])} a step and runs out near step {answer['runs_out_at_step']:,} of {card}: no plan helps"]
    if outcome == "script_failed":
        return [f"the cell fails by itself: {answer['seen']['failed']['why']}"]
    lines = [f"does not fit {card} without changes: {without} to be safe"]
    if answer["plans"]:
        lines.append(f"{fits} with one of these plans:")
        lines += [f"{Size(plan['needs_bytes'])!s:>12}  {' + '.join(plan['remedies'])}" for plan in answer["plans"]]
        lines += so_far
    elif answer["recipes"]:
        lines.append(f"fits with these changes for {answer['recipes'][0]['framework']}:")
        lines += answer["recipes"][0]["diff"].splitlines()
    elif answer["interrupted"]:
        lines.append("the search was interrupted before it found a plan that fits")
    else:
        closest = answer["closest"]
        lines.append("no plan fits" + (f"; closest: {' + '.join(closest['remedies'])}: {Size(closest['needs_bytes'])} to be safe" if closest else ""))
        lines += [f"{Size(it['needs_bytes'])!s:>12}  {' + '.join(it['remedies'])} (another model or input)" for it in answer["advice"]]
    return lines
