"""A prediction as typed values. The field names are those of `plimsoll predict --json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll._printable import printable
from plimsoll._sizes import Size


@dataclass(frozen=True)
class Line:
    """A line of code, and the memory that it allocated and that is live at the peak."""

    file: str
    line: int
    function: str
    size: Size
    category: str
    """What most of the memory is for, as in the JSON: `optimizer_state`."""
    mixed: bool = False
    """Whether another category has a tenth of it or more."""
    backward: bool = False
    """Whether the backward pass that this line called allocated it."""

    def __str__(self) -> str:
        """A row of a table."""
        mostly = "mostly " if self.mixed else ""
        backward = ", backward" if self.backward else ""
        return f"{self.size!s:>12}  {printable(self.file)}:{self.line}{backward} {mostly}{_in_words(self.category)}"


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
    """Memory that grows with the steps, or with the evaluations."""

    per_step: Size
    """By how much each of them makes it larger."""
    runs_out_at_step: int
    """The one in which the card runs out, from 1."""
    file: str | None
    """The line that allocates it."""
    line: int | None
    each: str = "step"
    """`step`, or `evaluation`."""


@dataclass(frozen=True)
class Finding:
    """Something wasteful in the run's memory; `plimsoll explain --code CODE` shows its manual page."""

    code: str
    """A stable word, such as `leak/graph-retained`."""
    title: str
    text: str
    size: Size | None
    """How much memory the remedy would save, if known."""


@dataclass(frozen=True)
class Prediction:
    """What the function needs on the card."""

    fits: bool
    """Whether it ran on the card without running out of memory, and under `max` if that was given."""
    gpu: str
    """The card's name on the command line."""
    gpu_name: str
    """The card's name as its driver reports it."""
    total: Size
    """The card's memory."""
    peak: Size
    """What the process needs: the largest GPU memory that nvidia-smi shows of it, CUDA context included."""
    peak_allocated: Size
    """`torch.cuda.max_memory_allocated()`."""
    peak_reserved: Size
    """`torch.cuda.max_memory_reserved()`."""
    safe: Size | None
    """The size to request so that a real run is safe: the peak, and an allowance for what is unknown on a phantom. None unless it fits. If it is more than the card has free, it is tight: a real run may not fit."""
    steps: int
    """Training steps that were seen; of a function without an optimizer, backward or forward passes."""
    steady: bool
    """Whether memory was the same in the last two steps."""
    categories: Mapping[str, Size]
    """What the memory at the peak is for; the sizes sum to `peak`. If memory ran out, that moment."""
    lines: tuple[Line, ...]
    """The lines of code whose memory is largest at the peak."""
    out_of_memory: OutOfMemory | None
    """Where memory ran out, if it did."""
    growth: Growth | None
    """How memory grows with the steps, if it does: then every card runs out in the end."""
    findings: tuple[Finding, ...]
    """What `plimsoll explain` finds in the recording."""
    carried_by: tuple[str, ...]
    """Cards of the catalogue that have the safe size."""
    notes: tuple[str, ...]
    """What limits this answer."""
    output: str = field(repr=False)
    """What the function wrote to standard output and standard error."""
    report: Mapping[str, Any] = field(repr=False)
    """All of `plimsoll predict --json`."""

    @property
    def headroom(self) -> Size | None:
        """What the card has to spare, also if boolean masks find everything; None if it does not fit."""
        headroom = self.report["headroom_bytes"]
        return None if headroom is None else Size(headroom)

    def __str__(self) -> str:
        """One sentence."""
        if self.growth is not None:
            grows = self.growth
            where = f" at {printable(grows.file)}:{grows.line}" if grows.file else ""
            when = f"runs out near {grows.each} {grows.runs_out_at_step:,} of {self.gpu_name} ({self.total})"
            return f"grows by {grows.per_step} {'a' if grows.each == 'step' else 'an'} {grows.each}{where}: {when}"
        if self.out_of_memory is not None:
            at = self.out_of_memory
            where = f" at {printable(at.file)}:{at.line}" if at.file else ""
            return f"does not fit {self.gpu_name} ({self.total}): runs out of memory in step {at.step}{where}"
        if self.report.get("verdict") == "depends":
            is_routed = self.report.get("undecided") == "experts"
            other = self.report.get("one_expert" if is_routed else "everything_found")
            most = Size(other["device_bytes"]) if other else "more than it has"
            if is_routed:
                return f"may not fit {self.gpu_name} ({self.total}): needs {self.peak} if routers spread tokens evenly, {most} if one expert gets all of them"
            return f"may not fit {self.gpu_name} ({self.total}): needs {self.peak} if boolean masks select nothing, {most} if they select everything"
        verb = "fits" if self.fits else "fits, as far as it was seen," if self.report.get("verdict") == "fits_so_far" else "is over the limit on"
        covers = (self.report.get("seen") or {}).get("covers")
        of_what = f" for {covers['words']}" if covers else ""
        safe = "" if self.safe is None else f", request {self.safe} to be safe"
        if self.safe is not None and self.total < self.safe:
            safe += ": TIGHT, that is more than the card has"
        return f"{verb} {self.gpu_name} ({self.total}){of_what}: needs {self.peak}{safe}"


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
        carried_by=tuple(it["id"] for it in report["cards"] if it["carries"] == "yes"),
        notes=tuple(it["text"] for it in report["notes"]),
        output=output,
        report=report,
    )


def _in_words(category: str) -> str:
    """The name of a category as reports show it."""
    return {"kept": "retained"}.get(category, category.replace("_", " "))


def _line(it: dict[str, Any]) -> Line:
    return Line(it["file"], it["line"], it["function"], Size(it["bytes"]), it["category"], it.get("mixed", False), it.get("origin") == "backward")


def _size(bytes_: int | None) -> Size | None:
    return None if bytes_ is None else Size(bytes_)


def _growth(report: Mapping[str, Any]) -> Growth | None:
    at = report.get("growth_at") or {}
    for each in ("step", "evaluation"):
        amount = report.get(f"growth_bytes_per_{each}")
        if amount is not None:
            return Growth(Size(amount), report[f"runs_out_at_{each}"], at.get("file"), at.get("line"), each)
    return None


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
