"""`watch`: reports memory problems of this process while it trains."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

from plimsoll import _binary
from plimsoll._agent import agent
from plimsoll._binary import PlimsollError
from plimsoll._printable import printable
from plimsoll._results import Prediction
from plimsoll._sizes import Size

_EVENTS = 200_000
# Of a plan or a prediction's JSON; no more of a file is read.
_MOST_BYTES = 64 << 20
# How long the last alarms may take, once the watch is over.
_AT_THE_END = 15.0

Expected = Union[str, int, "os.PathLike[str]", Prediction]


@dataclass(frozen=True)
class Alarm:
    """One thing that went wrong; docs/watch.md explains each code."""

    code: str
    """A stable word, such as `watch/growth`."""
    text: str
    step: int
    file: str | None
    """The file of the line that allocates what stays, if memory grows and plimsoll saw the line."""
    line: int | None
    per_step: Size | None
    """By how much each step makes memory larger."""
    runs_out_at_step: int | None
    report: Mapping[str, Any]
    """All of it, as `--alarms` writes it."""

    def __str__(self) -> str:
        """The sentence of the alarm."""
        return printable(self.text)


class Watch:
    """Watches from `start` to `stop`; also a context manager."""

    def __init__(
        self,
        *,
        label: str | None = None,
        expected: Expected | None = None,
        alarms: str | os.PathLike[str] | None = None,
        on_alarm: str | Callable[[Alarm], None] | None = None,
        webhook: str | None = None,
        quiet: bool = False,
        place: Callable[[str], str] | None = None,
    ) -> None:
        """Use `watch`, which starts one. `place` maps the name of a file to the one to show: a notebook's cells have no file."""
        self.alarms: list[Alarm] = []
        self._place = place
        self._label, self._expected = label, _bytes_of(expected)
        self._call = on_alarm if callable(on_alarm) else None
        self._words: list[str] = []
        if alarms is not None:
            self._words += ["--alarms", os.path.abspath(alarms)]
        if isinstance(on_alarm, str):
            self._words += ["--on-alarm", on_alarm]
        if webhook is not None:
            self._words += ["--webhook", webhook]
        self._quiet = quiet
        self._agent: Any = None
        self._watcher: Any = None
        self._reporter: subprocess.Popen[bytes] | None = None
        self._steps = 0
        self._is_anothers = False

    def start(self) -> Watch:
        """Begins to watch. On the phantom, where memory is not real, it does nothing."""
        if self._agent is not None:
            return self
        self._agent = agent(_EVENTS, asleep=True)
        is_reported = self._is_anothers = self._agent.watching.is_on
        self._watcher = self._agent.watching.begin(self._label, self._expected)
        if self._watcher is None:
            return self
        self._watcher.hearers.append(self._heard)
        # Under `plimsoll run --watch` that run reports alarms; files and addresses that this call names get them too.
        if not is_reported or self._words:
            words = [_binary.binary(), "watch", *self._words, "--session", self._agent.session]
            # Alarms that an earlier watch of this process has reported are not reported again.
            words += ["--since", str(time.time()), "--", str(os.getpid())]
            environment = {**os.environ, "PLIMSOLL_LABEL": self._label or Path(sys.argv[0] or "python").name}
            # It ends when this process closes its input, or ends.
            self._reporter = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment, start_new_session=True
            )
        self._quiet = self._quiet or is_reported
        atexit.register(self.stop)
        return self

    def step(self) -> None:
        """A step has ended. Only for loops whose steps are not those of an optimizer of `torch.optim`: once it was called, nothing
        else counts as one."""
        self._steps += 1
        if self._agent is not None:
            self._agent.watching.step_by_hand(self._steps)

    def stop(self) -> list[Alarm]:
        """Ends the watch once the last alarms are reported; returns all alarms."""
        found, self._agent, watcher, self._watcher = self._agent, None, self._watcher, None
        atexit.unregister(self.stop)
        if watcher is None:
            return self.alarms
        reporter, self._reporter = self._reporter, None
        if reporter is not None:
            if reporter.stdin is not None:
                # A worker that was forked meanwhile has this pipe, too: that we close it would not be seen.
                with contextlib.suppress(OSError):
                    reporter.stdin.write(b"\n")
                    reporter.stdin.flush()
                with contextlib.suppress(OSError):
                    reporter.stdin.close()
            try:
                reporter.wait(_AT_THE_END)
            except subprocess.TimeoutExpired:
                reporter.kill()
        watcher.read_told()
        watcher.hearers.remove(self._heard)
        if not self._is_anothers:
            found.watching.stop()
        return self.alarms

    def _heard(self, report: dict[str, Any]) -> None:
        at = report.get("at") or {}
        if self._place is not None and at.get("file"):
            shown = self._place(at["file"])
            report = {**report, "text": report["text"].replace(at["file"], shown), "at": {**at, "file": shown}}
            at = report["at"]
        per_step = report.get("bytes_per_step")
        alarm = Alarm(
            code=report["code"],
            text=report["text"],
            step=report["step"],
            file=at.get("file"),
            line=at.get("line"),
            per_step=None if per_step is None else Size(per_step),
            runs_out_at_step=report.get("runs_out_at_step"),
            report=report,
        )
        self.alarms.append(alarm)
        if not self._quiet:
            print(f"plimsoll: {printable(alarm.text)}", file=sys.stderr, flush=True)
        if self._call is not None:
            try:
                self._call(alarm)
            except Exception as error:
                # Training goes on, and so do the other alarms.
                warnings.warn(f"on_alarm raised {type(error).__name__}: {error}", stacklevel=2)

    def __enter__(self) -> Watch:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def watch(
    *,
    label: str | None = None,
    expected: Expected | None = None,
    alarms: str | os.PathLike[str] | None = None,
    on_alarm: str | Callable[[Alarm], None] | None = None,
    webhook: str | None = None,
    quiet: bool = False,
) -> Watch:
    """Watches the memory of this process from now on, and reports each problem once.

        plimsoll.watch()
        for batch in loader:
            ...

    Steps are those of the optimizers; training is not changed. It is also a context manager, and ends with `stop`.

    Args:
        label: the name of the run in alarms and in `plimsoll watch`; else the script's name.
        expected: the most that PyTorch should reserve: a plan, a prediction (or the file of either), a size.
        alarms: a file that gets each alarm as a line of JSON.
        on_alarm: a function of this process, called at the end of a step; or a command of the shell, run beside it.
        webhook: an address to which each alarm is sent.
        quiet: nothing on standard error.
    """
    made = Watch(label=label, expected=expected, alarms=alarms, on_alarm=on_alarm, webhook=webhook, quiet=quiet)
    return made.start()


def _bytes_of(expected: Expected | None) -> int | None:
    if expected is None or isinstance(expected, int):
        return expected
    if isinstance(expected, Prediction):
        return int(expected.report["peak_reserved_bytes"])
    path = Path(expected)
    if not path.is_file():
        try:
            return int(Size(str(expected)))
        except ValueError:
            raise PlimsollError(
                f"expected={str(expected)!r} is neither a file nor a size; give a plan, a prediction's JSON, or a size such as '20GiB'"
            ) from None
    with open(path, "rb") as file:
        text = file.read(_MOST_BYTES).decode("utf-8", "replace")
    # A plan is TOML, a prediction JSON.
    found = re.search(r"^predicted_reserved_bytes *= *([0-9_]+)", text, re.MULTILINE)
    if found is not None:
        return int(found[1].replace("_", ""))
    try:
        return int(json.loads(text)["peak_reserved_bytes"])
    except (ValueError, KeyError, TypeError):
        raise PlimsollError(f"{path} has no reserved size; expected a plan or the JSON of `plimsoll predict`") from None
