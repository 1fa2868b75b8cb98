"""The settings of this run: the variables of the environment, read here and nowhere else.

`read` has what the agent is told when it starts, once. A nursery's child has another environment than its parent, and its agent reads it
anew. What stands beside it is asked by few, some of them without an agent. `tests/agent/test_doors.py` has the files that read or write the
environment themselves, each with its reason.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """What is asked of this process."""

    is_real: bool
    """A real training on the machine's own devices, with all its ranks."""
    stop: str
    """Where the run ends: "steady", "validation", "one-validation", "one-validation:" and a number, "until-exit", or "steps:" and a number."""
    plan: str
    """JSON; empty for none."""
    sites: bool
    """Whether places in the script are looked for where something could be changed."""
    meter: bool
    measure: bool
    survive: bool
    hopeless: tuple[int, int]
    """Bytes after which a candidate need not go on, 0 for none, and the steps that it makes all the same."""
    ghost_weights: str
    """When weights have no values: "on" from the start; "off" never; "stand-ins" never, and large random fills repeat a few numbers; anything
    else when the weights on the host become many."""
    batch_length: str
    image_size: str
    worst_sample: bool
    half: str
    worst_batches: bool
    """Whether loaders begin with the worst batches of their data."""
    unhurried: bool
    own_batches: bool
    """Whether batches are not shared with other runs of a search."""
    engine: str
    """JSON: what a search asks of a serving engine; empty for nothing."""
    most_reserved: int
    """Bytes that the allocator may reserve on each device; 0 for no limit, -1 for none that the script sets either."""
    allocator: str
    """What PyTorch's allocator was set to when the process began; empty for nothing."""
    most_events: int
    """How many of the last events of the allocator are stored."""
    folds: bool
    """Whether Python prints an out-of-memory error that ends the script without its traceback, because a report follows that has the line. `sitecustomize` reads it for interrupts."""
    stacks: str
    """In which steps stacks are taken: "all", "sampled", "none", or "asleep" until a recording is asked for."""
    watch: str
    """Whether the run is watched; "status" if only for `plimsoll top`."""
    label: str | None
    expected: int | None
    """Bytes that PyTorch is to reserve at most."""


def read() -> Settings:
    """Those of the environment as it is now."""
    of = os.environ.get
    expected = of("PLIMSOLL_EXPECTED", "")
    return Settings(
        is_real=mode() == "run",
        stop=of("PLIMSOLL_STOP") or "steady",
        plan=of("PLIMSOLL_PLAN", ""),
        sites=bool(of("PLIMSOLL_SITES")),
        meter=bool(of("PLIMSOLL_METER")),
        measure=bool(of("PLIMSOLL_MEASURE")),
        survive=bool(of("PLIMSOLL_SURVIVE")),
        hopeless=_hopeless(of("PLIMSOLL_HOPELESS", "")),
        ghost_weights=of("PLIMSOLL_GHOST_WEIGHTS", ""),
        batch_length=of("PLIMSOLL_BATCH_LENGTH", ""),
        image_size=of("PLIMSOLL_IMAGE_SIZE", ""),
        worst_sample=bool(of("PLIMSOLL_WORST_SAMPLE")),
        half=of("PLIMSOLL_HALF", ""),
        worst_batches=bool(of("PLIMSOLL_WORST_BATCHES")),
        unhurried=bool(of("PLIMSOLL_UNHURRIED")),
        own_batches=bool(of("PLIMSOLL_OWN_BATCHES")),
        engine=of("PLIMSOLL_ENGINE", ""),
        most_reserved=int(of("PLIMSOLL_LIMIT_RESERVED") or 0),
        allocator=of("PYTORCH_ALLOC_CONF") or of("PYTORCH_CUDA_ALLOC_CONF", ""),
        most_events=int(of("PLIMSOLL_EVENTS") or sys.maxsize),
        folds=bool(of("PLIMSOLL_FOLDS")),
        stacks=of("PLIMSOLL_STACKS", ""),
        watch=of("PLIMSOLL_WATCH", ""),
        label=of("PLIMSOLL_LABEL"),
        expected=int(expected) if expected.isdigit() else None,
    )


def session() -> str | None:
    """The folder for what the agent records; None where no agent is wanted."""
    return os.environ.get("PLIMSOLL_SESSION")


def mode() -> str:
    """"predict", "run" or "nursery"."""
    return os.environ.get("PLIMSOLL_MODE", "")


def has_plan() -> bool:
    """Whether the program is to be changed, without which it must not run."""
    return bool(os.environ.get("PLIMSOLL_PLAN"))


def few_parts() -> tuple[int, int] | None:
    """How many parts of a batch in more parts go through the model, and after how many batches; None for all."""
    parts, _, after = os.environ.get("PLIMSOLL_FEW_PARTS", "").partition(":")
    return (int(parts), int(after)) if parts else None


def _hopeless(text: str) -> tuple[int, int]:
    above, _, after = text.partition(":")
    return int(above or 0), int(after or 0)


def number(variable: str) -> int | None:
    """A number that a launcher sets (`RANK`, `WORLD_SIZE`); None if it is none."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else None


def together() -> list[int]:
    """The ranks of the job that are processes, where there are several and the rest is imagined."""
    return [int(it) for it in os.environ.get("PLIMSOLL_TOGETHER", "").split(",") if it.isdigit()]


def running() -> str | None:
    """Where the files of runs that are under way are to be, if `plimsoll watch` or a test sets it."""
    return os.environ.get("PLIMSOLL_RUNNING")


def runtime_folder() -> str | None:
    """The user's own folder for what lasts as long as a session of the machine; None where there is none."""
    return os.environ.get("XDG_RUNTIME_DIR")
