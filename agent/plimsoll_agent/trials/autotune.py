"""What `torch.compile(mode="max-autotune")` tries, and `triton.autotune`.

Inductor compiles dozens of Triton kernels for each matrix product and times them. On a phantom no kernel runs and
no time passes, so which one wins is not found out by trying all of them; what the trying itself takes of the
device is the same for each of a kind. So one of a kind is compiled and timed, and the report says so. Likewise of the
configurations that a kernel of the program's own is tuned by.
"""

from __future__ import annotations

import functools
import inspect
import math
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.after_import import after_import
from plimsoll_agent.values import phantom

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from plimsoll_agent.kinds import Function, Library
    from plimsoll_agent.run.recording import Recording

CHOICES, KERNELS = "torch._inductor.select_algorithm", "torch._inductor.runtime.triton_heuristics"
TIMES = "torch._inductor.runtime.benchmarking"
TUNED = "triton.runtime.autotuner"
MANY = ("max_autotune", "max_autotune_pointwise")
NOTE = (
    "torch.compile times many Triton kernels and takes the fastest; on the phantom, where nothing can be timed, it tried "
    "one of each kind, and took a library's kernel where there is one"
)

TUNED_NOTE = (
    "Triton times the configurations of its kernels; on the phantom, where nothing can be timed, it tried two of each "
    "kernel"
)
ENOUGH = 2
"""Configurations of a kernel that are timed: one alone is not."""


def watch(recording: Recording) -> None:
    """From now on Inductor tries less. It is not imported for that."""
    if not phantom.is_here():
        return
    said = set()

    def say(code: str, text: str) -> None:
        if code not in said:
            said.add(code)
            recording.note(code, text)

    of_inductor = functools.partial(say, "max-autotune", NOTE)
    places: dict[str, Callable[[ModuleType], object]] = {
        CHOICES: functools.partial(_fewer_choices, say=of_inductor),
        KERNELS: functools.partial(_fewer_configs, say=of_inductor),
        TIMES: _fewer_times,
        TUNED: functools.partial(_fewer_timed, say=functools.partial(say, "triton-autotune", TUNED_NOTE)),
    }
    for name, change in places.items():
        after_import(name, change)


def of_a_kind(choices: Any, kind_of: Any) -> Any:
    """The first of each kind, in their order; all of those that have no kind."""
    seen, kept = set(), []
    for choice in choices:
        kind = kind_of(choice)
        if kind is None or kind not in seen:
            kept.append(choice)
            seen.add(kind)
    return kept


def _fewer_choices(module: Library, say: Function) -> None:
    template = module.TritonTemplateCaller

    def kind_of(choice: Any) -> str | None:
        if not isinstance(choice, template):
            return None
        workspace = getattr(choice, "workspace_arg", None)
        return str(getattr(workspace, "count", None))

    def fewer(choices: Any) -> Any:
        kept = of_a_kind(choices, kind_of)
        if len(kept) == 1:
            # Two are timed, and timing takes memory; one is not.
            kept = choices[:2]
        if len(kept) < len(choices):
            say()
        return kept

    # Where nothing can be said to that, all are tried.
    selector = getattr(module, "AlgorithmSelectorCache", None)
    if hasattr(selector, "add_preprocessing_fn"):
        patch.replace(selector, "__init__", functools.partial(_made, fewer=fewer))


def _made(real: Function, *, fewer: Function) -> Function:
    """Inductor's selector is told when the program makes it: making it asks for the current GPU, which initializes CUDA."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        self.add_preprocessing_fn(fewer)

    return __init__


def _fewer_configs(module: Library, say: Function) -> None:
    tuner = module.CachingAutotuner
    # The inner one, of 2.9 and later, is what the other calls.
    name = next(it for it in ("_coordinate_descent_tuning", "coordinate_descent_tuning") if hasattr(tuner, it))
    make = tuner.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        # Without max-autotune there are a handful, and what each is timed with is taken one after the other.
        tries_many = any(self.inductor_meta.get(it) for it in MANY)
        if tries_many and len(self.configs) > 2:
            self.configs = self.configs[:2]
            say()

    def stay(self: Any, launcher: Any, *args: Any, **kwargs: Any) -> Any:
        # It would compile every neighbour of every kernel, and stay where it is.
        self.bench(launcher, *args, **kwargs)
        launcher.config.found_by_coordesc = True
        say()
        return launcher

    patch.put(tuner, "__init__", __init__)
    patch.put(tuner, name, stay)


def _fewer_times(module: Library) -> None:
    """Each thing that is timed takes as long, and as much memory, the hundredth time as the second time."""
    benchmarker = getattr(module, "InductorBenchmarker", None)
    if benchmarker is None:
        return
    bench = benchmarker.benchmark_gpu
    known = inspect.signature(bench).parameters
    few = {name: n for name, n in (("memory_warmup_iters", 1), ("benchmark_iters", ENOUGH)) if name in known}

    def benchmark_gpu(self: Any, timed: Any, *args: Any, **kwargs: Any) -> Any:
        return bench(self, timed, *args, **(kwargs if args else {**few, **kwargs}))

    patch.put(benchmarker, "benchmark_gpu", benchmark_gpu)


def _fewer_timed(module: Library, say: Function) -> None:
    tuner = module.Autotuner
    prune, bench = tuner.prune_configs, tuner._bench

    def prune_configs(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._plimsoll_timed = 0  # Once before all of them.
        return prune(self, *args, **kwargs)

    def _bench(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(self, "_plimsoll_timed", 0) >= ENOUGH:
            say()
            return [math.inf] * 3  # As of a configuration that does not fit the card.
        timings = bench(self, *args, **kwargs)
        if timings is not None and (timings[0] if isinstance(timings, (list, tuple)) else timings) != math.inf:
            self._plimsoll_timed = getattr(self, "_plimsoll_timed", 0) + 1
        return timings

    patch.put(tuner, "prune_configs", prune_configs)
    patch.put(tuner, "_bench", _bench)
