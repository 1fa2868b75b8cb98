"""`predict`: runs a function on a phantom GPU."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from plimsoll import _binary, _calls
from plimsoll._binary import PlimsollError
from plimsoll._results import Finding, Prediction, prediction
from plimsoll._sizes import Size

_FITS_OR_NOT = (0, 1)


def predict(
    function: Callable[..., Any],
    *args: Any,
    gpu: str | None = None,
    memory: str | int | None = None,
    max: str | int | None = None,
    steps: int | None = None,
    until_exit: bool = False,
    record: str | os.PathLike[str] | None = None,
    writes: str | None = None,
    **kwargs: Any,
) -> Prediction:
    """Runs `function(*args, **kwargs)` in a process of its own, on a phantom GPU, and returns what memory it needs.

    The function is a whole training, or enough of it: plimsoll ends it once memory is steady from step to step, unless
    `until_exit`. The new process has no object of this one: build models and data inside the function.

    Args:
        function: at the top level of a module or of the script; others need cloudpickle.
        gpu: a card of `plimsoll cards`, or a file that describes one; without it plimsoll imitates this machine's GPU, or else the
            largest card, and `carried_by` lists the cards that the run fits.
        memory: the card's memory, instead of what it has, as in "20GiB".
        max: the answer's `fits` is False above this size on the device, as in "22GiB".
        steps: ends the run after so many optimizer steps.
        until_exit: runs the whole function.
        writes: where the function's writes go, as with `--writes`: "layer" (also if not given: a private layer that is thrown away),
            "keep=DIR" (the same, and the layer is copied to DIR), or "through" (into your files).
        record: saves the recording in this file, for `plimsoll explain` and `plimsoll view`.

    Raises:
        CannotReach: the function cannot be carried into another process.
        FunctionFailed: the function raised, other than out of memory.
        PlimsollError: no answer, for another reason: no supported torch, no such card.
    """
    with tempfile.TemporaryDirectory(prefix="plimsoll-") as folder:
        here = Path(folder)
        _calls.write(here / "call", function, args, kwargs)
        report_path, recording = here / "report.json", Path(record) if record is not None else here / "run.zip"
        # What the function writes is thrown away, except its result.
        answers = here / "answers"
        answers.mkdir()
        words = ["--through", str(answers)]
        for name, value in (("--gpu", gpu), ("--memory", memory), ("--max", max), ("--steps", steps), ("--writes", writes)):
            if value is not None:
                shown = str(int(value)) if isinstance(value, int) else str(value)
                words += [name, f"{shown}B" if isinstance(value, int) and name in ("--memory", "--max") else shown]
        if until_exit:
            words.append("--until-exit")
        result = answers / "result"

        def raise_its_error() -> None:
            if result.exists():
                _calls.answer(result)

        return predicted(words, command(here / "call", result), report_path, recording, raise_its_error)


def predicted(
    options: Sequence[str], words: Sequence[str], report_path: Path, recording: Path, raise_its_error: Callable[[], None]
) -> Prediction:
    """What `plimsoll predict` answers for a command. It writes its report to `report_path` and the recording to `recording`; where it has no
    answer, `raise_its_error` may know why."""
    ran = _binary.run(["predict", "--quiet", "--json", str(report_path), "--record", str(recording), *options, "--", *words])
    output = ran.stdout + ran.stderr
    report: dict[str, Any] = {}
    if report_path.exists() and report_path.stat().st_size:
        report = json.loads(report_path.read_text(encoding="utf-8"))
    if ran.returncode not in _FITS_OR_NOT and report.get("verdict") not in ("depends", "fits_so_far"):
        raise_its_error()
        raise PlimsollError(_binary.said(ran.stderr) or f"plimsoll predict ended with exit code {ran.returncode}:\n{output[-2000:]}")
    return prediction(report, _findings(recording), output)


def command(call: Path, result: Path | None) -> list[str]:
    """The command that makes the call, in this very Python."""
    words = [*_binary.module("plimsoll._calls"), str(call)]
    return words if result is None else [*words, str(result)]


def _findings(recording: Path) -> list[Finding]:
    ran = _binary.run(["explain", "--json", "-", str(recording)])
    try:
        found = json.loads(ran.stdout)["findings"]
    except (ValueError, KeyError, TypeError):
        return []  # A run that used no GPU has nothing to explain.
    return [
        Finding(it["code"], it["title"], it["remedy"], Size(it["bytes"]) if it["bytes"] else None)
        for it in found
    ]
