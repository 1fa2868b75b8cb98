"""`fit`: runs a training function on the machine's own GPU, with a plan that makes it fit."""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from plimsoll import _binary, _calls
from plimsoll._binary import PlimsollError
from plimsoll._predict import command

Returned = TypeVar("Returned")


class Fitted(Generic[Returned]):
    """A function that runs in a process of its own, with a plan that makes it fit."""

    def __init__(
        self,
        function: Callable[..., Returned],
        *,
        gpu: str | None = None,
        memory: str | int | None = None,
        plan: str | os.PathLike[str] | None = None,
        keep_numerics: bool = False,
        allow: Sequence[str] = (),
        forbid: Sequence[str] = (),
        record: str | os.PathLike[str] | None = None,
        no_gpu: bool = False,
        writes: str | None = None,
    ) -> None:
        """Use `fit`, which makes these."""
        self.__plimsoll_function__ = function
        functools.update_wrapper(self, function)
        self._gpu, self._memory, self._plan = gpu, memory, plan
        self._keep_numerics, self._allow, self._forbid = keep_numerics, tuple(allow), tuple(forbid)
        self._record, self._no_gpu, self._writes = record, no_gpu, writes

    def __call__(self, *args: Any, **kwargs: Any) -> Returned:
        """Makes the plan, and runs the function with it on the machine's own GPU. Returns what the function returns."""
        if os.environ.get(_calls.INSIDE):
            return self.__plimsoll_function__(*args, **kwargs)
        with tempfile.TemporaryDirectory(prefix="plimsoll-") as folder:
            here = Path(folder)
            _calls.write(here / "call", self.__plimsoll_function__, args, kwargs)
            plan = self._existing_plan()
            if plan is None and self._gpu is not None:
                plan = self._search(here)
            words = ["run"]
            if self._no_gpu:
                words.append("--no-gpu")
            if self._record is not None:
                words += ["--record", str(self._record)]
            if plan is not None:
                words += ["--plan", str(plan)]
            elif self._gpu is None:
                words += ["--fit", *self._choices()]
                words += ["--plan", str(self._plan)] if self._plan is not None else []
            result = here / "result"
            sys.stdout.flush()
            ran = _binary.run([*words, "--", *command(here / "call", result)], inherit=True)
            if not result.exists():
                raise PlimsollError(f"plimsoll run ended with exit code {ran.returncode}; its error is above")
            value: Returned = _calls.answer(result)
            return value

    def _existing_plan(self) -> Path | None:
        plan = None if self._plan is None else Path(self._plan)
        return plan if plan is not None and plan.is_file() else None

    def _search(self, here: Path) -> Path | None:
        """The plan for the card that was named; None if the function fits without changes."""
        plan = Path(self._plan) if self._plan is not None else here / "plan.toml"
        words = ["fit", "--gpu", str(self._gpu), "--plan", str(plan), *self._choices()]
        if self._memory is not None:
            words += ["--memory", self._memory if isinstance(self._memory, str) else f"{int(self._memory)}B"]
        answer = here / "fit.json"
        ran = _binary.run([*words, "--json", str(answer), "--", *command(here / "call", None)])
        outcome = json.loads(answer.read_text(encoding="utf-8"))["outcome"] if answer.exists() and answer.stat().st_size else None
        if outcome in ("depends", "fits_so_far"):
            print(ran.stdout, file=sys.stderr)  # The real run computes what the phantom cannot, and comes to what it did not.
        elif ran.returncode != 0:
            # The answer is on standard output; an error is on the other, after the progress.
            words = ran.stdout.strip().splitlines() or _binary.said(ran.stderr).splitlines()[-1:]
            raise PlimsollError("\n".join(words) or f"plimsoll fit ended with exit code {ran.returncode}")
        return plan if plan.is_file() else None

    def _choices(self) -> Sequence[str]:
        words = ["--keep-numerics"] if self._keep_numerics else []
        words += ["--writes", self._writes] if self._writes is not None else []
        for name, remedies in (("--allow", self._allow), ("--forbid", self._forbid)):
            if remedies:
                words += [name, ",".join(remedies)]
        return words


@overload
def fit(function: Callable[..., Returned]) -> Fitted[Returned]: ...


@overload
def fit(
    *,
    gpu: str | None = None,
    memory: str | int | None = None,
    plan: str | os.PathLike[str] | None = None,
    keep_numerics: bool = False,
    allow: Sequence[str] = (),
    forbid: Sequence[str] = (),
    record: str | os.PathLike[str] | None = None,
    no_gpu: bool = False,
    writes: str | None = None,
) -> Callable[[Callable[..., Returned]], Fitted[Returned]]: ...


def fit(function: Callable[..., Returned] | None = None, **options: Any) -> Any:
    """Decorates a training function: calling it runs it in a process of its own, with the cheapest plan that fits.

        @plimsoll.fit(gpu="rtx4090", plan="plan.toml")
        def train(batch_size): ...

        if __name__ == "__main__":
            train(64)

    The plan is searched on the phantom before the function runs for real, with the arguments of the call. What the
    function returns comes back, if it can be pickled; `function.__wrapped__` is the plain one.

    Args:
        gpu: the card to plan for; without it, what is free on the machine's own device right now.
        memory: the card's memory, instead of what it has.
        plan: the file for the plan; if it exists, plimsoll uses it and searches nothing.
        keep_numerics: no remedy that changes the numbers by more than rounding.
        allow: only these remedies.
        forbid: not these remedies.
        record: saves the recording of the real run in this file.
        no_gpu: runs on a machine without a GPU.
        writes: where the function's writes go while a plan is searched, as with `--writes`: "layer" (also if not given) or "through". The
            real run writes into your files.
    """
    if function is not None:
        return Fitted(function, **options)
    return functools.partial(Fitted, **options)
