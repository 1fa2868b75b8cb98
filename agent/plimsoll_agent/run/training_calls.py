"""The calls by which a program trains: an optimizer's `step`, `zero_grad` and `backward`, where they begin and end.

All code of the agent in their wrappers is guarded, except what ends a run that has shown enough; see `stopping`. The test of guards breaks
each of these functions in turn, and trains all the same.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run import frames
from plimsoll_agent.run.phases import BACKWARD, OPTIMIZER, ZERO_GRAD

if TYPE_CHECKING:
    from collections.abc import Callable

    from plimsoll_agent.kinds import Arguments, Function, Named, Torch
    from plimsoll_agent.run.oom import OutOfMemory
    from plimsoll_agent.run.phases import Phases
    from plimsoll_agent.run.stopping import Stopping
    from plimsoll_agent.run.training_steps import Steps


class TrainingCalls:
    """Wraps them, and reports to phases and steps. Other listeners can be set before anything is wrapped; they are guarded, too."""

    def __init__(self, torch: Torch, phases: Phases, steps: Steps, stopping: Stopping, oom: OutOfMemory, is_live: Callable[[], bool]) -> None:
        self._torch = torch
        self._phases, self._steps, self._stopping, self._oom = phases, steps, stopping, oom
        self._is_live = is_live
        self.around_step: Callable[[Function, Arguments, Named], Any] = lambda step, args, kwargs: step(*args, **kwargs)
        """`around_step(step, args, kwargs)` runs in the place of `step(*args, **kwargs)`."""
        self.step_failed: Callable[[BaseException], object] = lambda error: None
        self.before_backward: Callable[[Arguments, Named, bool], object] = lambda args, kwargs, is_grad: None

    def wrap_optimizers(self) -> None:
        """Optimizers that are made from now on."""
        is_live, steps, optimizer_class = self._is_live, self._steps, self._torch.optim.Optimizer
        hook_step, make = optimizer_class.profile_hook_step, optimizer_class.__init__

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            try:
                make(self, *args, **kwargs)
            except BaseException as error:
                frames.hide_ours(error)
                raise
            if is_live():
                steps.optimizer_made(self)

        # PyTorch puts the `step` of every optimizer class through this function, also those of the user.
        def hooked_step(step: Function) -> Any:
            step = hook_step(step)

            return functools.wraps(step)(self._counted_step(step))

        patch.put(optimizer_class, "__init__", __init__)
        patch.put(optimizer_class, "profile_hook_step", staticmethod(hooked_step))

    def wrap_optimizers_in_use(self) -> None:
        """PyTorch wraps a class's `step` when its first object is made; those that were made before us."""
        classes = [self._torch.optim.Optimizer]
        while classes:
            owner = classes.pop()
            classes += owner.__subclasses__()
            step = owner.__dict__.get("step")
            if getattr(step, "hooked", False):
                patch.put(owner, "step", functools.wraps(step)(self._counted_step(step)))

    def wrap_zero_grad(self) -> None:
        """Of optimizers and of modules."""
        for owner in (self._torch.optim.Optimizer, self._torch.nn.Module):
            patch.replace(owner, "zero_grad", self._wrapped_zero_grad)

    def wrap_backward(self) -> None:
        """Of tensors and of lists of them."""
        for name in ("backward", "grad"):  # Tensor.backward calls the former.
            patch.replace(self._torch.autograd, name, self._wrapped_backward)

    def _wrapped_zero_grad(self, zero_grad: Function) -> Function:
        is_live, phases, stopping = self._is_live, self._phases, self._stopping

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if not is_live():
                return zero_grad(*args, **kwargs)
            stopping.here(phases.thread)
            began = phases.begin(ZERO_GRAD)
            try:
                return zero_grad(*args, **kwargs)
            except BaseException as error:
                frames.hide_ours(error)
                raise
            finally:
                if began:
                    phases.end(ZERO_GRAD)

        return wrapped

    def _counted_step(self, step: Function) -> Function:
        is_live, phases, steps, stopping, oom = self._is_live, self._phases, self._steps, self._stopping, self._oom
        around, failed = self.around_step, self.step_failed

        def counted(*args: Any, **kwargs: Any) -> Any:
            if not is_live():
                return step(*args, **kwargs)
            steps.optimizer_begins()
            began, returned = phases.begin(OPTIMIZER), False
            try:
                result = around(step, args, kwargs)
                returned = True
            except BaseException as error:
                oom.passed_by(error)
                failed(error)
                frames.hide_ours(error)
                raise
            finally:
                outermost = steps.optimizer_leaves()
                if began:
                    phases.end(OPTIMIZER)
                if returned and args:
                    steps.optimizer_stepped(args[0], bool(outermost))
            stopping.here(phases.thread)
            return result

        return counted

    def _wrapped_backward(self, run: Function) -> Function:
        is_live, phases, steps, stopping, oom = self._is_live, self._phases, self._steps, self._stopping, self._oom
        before = self.before_backward
        counts = run.__name__ == "backward"

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if not is_live():
                return run(*args, **kwargs)
            stopping.here(phases.thread)
            before(args, kwargs, not counts)
            began = phases.begin(BACKWARD)
            try:
                result = run(*args, **kwargs)
            except BaseException as error:
                oom.passed_by(error)
                if began:
                    phases.end(BACKWARD)
                frames.hide_ours(error)
                raise
            if began:
                phases.end(BACKWARD)
                if counts:
                    steps.backward_ended()
            stopping.here(phases.thread)
            return result

        return wrapped
