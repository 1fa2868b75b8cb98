"""torchdiffeq's solvers choose their steps by errors that nobody computed on a phantom. There a solver takes steps of one size,
`STEPS` from the first time to the last, and accepts each: how many it takes on a GPU depends on values, and the graph of each is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.after_import import after_import
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Function, Torch
    from plimsoll_agent.run.recording import Recording

STEPS = 20


def install(torch: Torch, recording: Recording) -> None:
    """Takes its places once the library is imported."""

    @guarded
    def wrap(module: Any) -> None:
        def integrates(original: Function) -> Function:
            def before_integrate(self: Any, t: Any) -> Any:
                first_step_of(self, t)
                return original(self, t)

            return before_integrate

        def judges(original: Function) -> Function:
            def error_ratio(*args: Any, **kwargs: Any) -> Any:
                return torch.full_like(original(*args, **kwargs), 0.5)

            return error_ratio

        def chooses(original: Function) -> Function:
            def optimal_step_size(last_step: Any, *args: Any, **kwargs: Any) -> Any:
                return last_step

            return optimal_step_size

        patch.replace(module.RKAdaptiveStepsizeODESolver, "_before_integrate", integrates)
        patch.replace(module, "_compute_error_ratio", judges)
        patch.replace(module, "_optimal_step_size", chooses)

    @guarded
    def first_step_of(solver: Any, t: Any) -> None:
        if solver.first_step is None:
            solver.first_step = ((t[-1] - t[0]) / STEPS).to(solver.dtype)
            recording.note(
                "solver-steps",
                "plimsoll assumed that torchdiffeq's adaptive solver takes %d steps: how many it takes depends on values, and training "
                "stores the graph of each; the option `step_size` of a solver with fixed steps shows another number" % STEPS,
            )

    after_import("torchdiffeq._impl.rk_common", wrap)
