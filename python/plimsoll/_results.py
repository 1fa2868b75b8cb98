"""What a prediction says, as typed values. The field names are those of `plimsoll predict --json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll._printable import printable
from plimsoll._sizes import Size


@dataclass(frozen=True)
class Line:
    """A line of code, and what it holds at the peak."""

    file: str
    line: int
    function: str
    size: Size
    category: str

    def __str__(self) -> str:
        """A row of a table."""
        return f"{self.size!s:>12}  {printable(self.file)}:{self.line} {self.category}"


@dataclass(frozen=True)
class OutOfMemory:
    """Where memory ran out."""

    step: int
    """The step, from 1; 0 before training."""
    phase: str | None
    requested: Size
    allocated: Size
    reserved: Size
    file: str | None
    line: int | None


@dataclass(frozen=True)
class Growth:
    """Memory that grows with the steps."""

    per_step: Size
    """What each step leaves behind."""
    runs_out_at_step: int
    """The step in which the card runs out, from 1."""
    file: str | None
    """Where that is made."""
    line: int | None


@dataclass(frozen=True)
class Finding:
    """One thing that is worth knowing of the run's memory; `plimsoll explain --code CODE` has its manual page."""

    code: str
    """A stable word, such as `leak/graph-retained`."""
    title: str
    text: str
    size: Size | None
    """What it would give back, where that is known."""


@dataclass(frozen=True)
class Prediction:
    """What the function takes on the card."""

    fits: bool
    """Whether it ran on the card without running out of memory, and under `max` if that was given."""
    gpu: str
    """The card's name on the command line."""
    gpu_name: str
    """The card's name as its driver reports it."""
    total: Size
    """The card's memory."""
    peak: Size
    """The most that the process takes of the device: what nvidia-smi shows, CUDA context included."""
    peak_allocated: Size
    """`torch.cuda.max_memory_allocated()`."""
    peak_reserved: Size
    """`torch.cuda.max_memory_reserved()`."""
    safe: Size | None
    """What to give the job so that it runs: the peak and an allowance for what a phantom cannot know. None if it grows."""
    steps: int
    """Training steps that were seen; of a function without an optimizer, backward or forward passes."""
    steady: bool
    """Whether memory was the same in the last two steps."""
    categories: Mapping[str, Size]
    """The peak by what it is for, the sizes sum to `peak`; or where memory ran out, that moment."""
    lines: tuple[Line, ...]
    """The lines of code that hold most at the peak."""
    out_of_memory: OutOfMemory | None
    """Where memory ran out, if it did."""
    growth: Growth | None
    """How memory grows with the steps, if it does; then it fits no card for long."""
    findings: tuple[Finding, ...]
    """What `plimsoll explain` finds in the recording."""
    carried_by: tuple[str, ...]
    """Cards of the catalogue that carry it."""
    notes: tuple[str, ...]
    """What one has to know to trust the rest."""
    output: str = field(repr=False)
    """What the function wrote to standard output and standard error."""
    report: Mapping[str, Any] = field(repr=False)
    """All of `plimsoll predict --json`."""

    @property
    def headroom(self) -> Size | None:
        """What is left of the card whatever boolean masks find; None if it does not fit."""
        left = self.report["headroom_bytes"]
        return None if left is None else Size(left)

    def __str__(self) -> str:
        """One sentence."""
        if self.growth is not None:
            grows = self.growth
            where = f" at {printable(grows.file)}:{grows.line}" if grows.file else ""
            when = f"runs out near step {grows.runs_out_at_step:,} of {self.gpu_name} ({self.total})"
            return f"grows {grows.per_step} a step{where}: {when}"
        if self.out_of_memory is not None:
            at = self.out_of_memory
            where = f" at {printable(at.file)}:{at.line}" if at.file else ""
            return f"does not fit {self.gpu_name} ({self.total}): runs out of memory in step {at.step}{where}"
        if self.report.get("verdict") == "depends":
            found = self.report.get("everything_found")
            most = Size(found["device_bytes"]) if found else "more than it has"
            return f"may not fit {self.gpu_name} ({self.total}): takes {self.peak} if boolean masks find nothing, {most} if they find everything"
        if not self.fits:
            return f"is over the limit on {self.gpu_name} ({self.total}): takes {self.peak}"
        return f"fits {self.gpu_name} ({self.total}): takes {self.peak}, give it {self.safe} to be safe"


def prediction(report: dict[str, Any], findings: list[Finding], output: str) -> Prediction:
    """The answer from `plimsoll predict --json`."""
    return Prediction(
        fits=report["verdict"] == "fits",
        gpu=report["gpu"],
        gpu_name=report["gpu_name"],
        total=Size(report["gpu_total_bytes"]),
        peak=Size(report["peak_device_bytes"]),
        peak_allocated=Size(report["peak_allocated_bytes"]),
        peak_reserved=Size(report["peak_reserved_bytes"]),
        safe=_size(report["safe_bytes"]),
        steps=report["steps_seen"],
        steady=report["steady"],
        categories={name: Size(size) for name, size in report["categories"].items() if size},
        lines=tuple(_line(it) for it in report["top_lines"] if it.get("file")),
        out_of_memory=_oom(report.get("oom")),
        growth=_growth(report),
        findings=tuple(findings),
        carried_by=tuple(it["id"] for it in report["cards"] if it["carries"] in ("yes", "tight")),
        notes=tuple(it["text"] for it in report["notes"]),
        output=output,
        report=report,
    )


def _line(it: dict[str, Any]) -> Line:
    return Line(it["file"], it["line"], it["function"], Size(it["bytes"]), it["category"])


def _size(bytes_: int | None) -> Size | None:
    return None if bytes_ is None else Size(bytes_)


def _growth(report: Mapping[str, Any]) -> Growth | None:
    per_step = report.get("growth_bytes_per_step")
    if per_step is None:
        return None
    at = report.get("growth_at") or {}
    return Growth(Size(per_step), report["runs_out_at_step"], at.get("file"), at.get("line"))


def _oom(it: dict[str, Any] | None) -> OutOfMemory | None:
    if it is None:
        return None
    at = it.get("at") or {}
    return OutOfMemory(
        step=it["step"],
        phase=it.get("phase"),
        requested=Size(it["requested_bytes"]),
        allocated=Size(it["allocated_bytes"]),
        reserved=Size(it["reserved_bytes"]),
        file=at.get("file"),
        line=at.get("line"),
    )
