"""Automatic mixed precision in float16, with the loss scaled: as `torch.amp.GradScaler`, without a line in the script.

Backward runs at a large scale, so that small gradients do not vanish; each gradient is brought back to its own scale
before it is added to `.grad`. So clipping, accumulation and whatever else looks at gradients see true ones. A step
whose gradients are not finite is left out and the scale halved; after 2,000 good ones it is doubled.

Changes the numbers: float16 has 11 bits of mantissa and a small range. Weights stay as they are.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.remedies.autocast import under_autocast
from plimsoll_agent.run.refusal import unsuited

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Backward, Function, Named, Note, Optimizer, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks

FIRST_SCALE = 65536.0
PATIENCE = 2000
"""Good steps after which the scale is doubled. Both are GradScaler's."""


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    under_autocast(torch, hooks, torch.float16)
    scale = Scale(torch)

    make_scaler = torch.amp.GradScaler.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("enabled", True):
            raise unsuited("autocast-fp16", "this script: it has a GradScaler of its own")
        make_scaler(self, *args, **kwargs)  # One that is switched off does nothing.

    patch.put(torch.amp.GradScaler, "__init__", __init__)
    hooks.around_backward(scale.around_backward)
    optimizer_class = torch.optim.Optimizer
    make = optimizer_class.__init__

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        scale.watch(self)

    patch.put(optimizer_class, "__init__", made)
    patch.replace(optimizer_class, "profile_hook_step", scale.unless_overflown)


class Scale:
    """The scale of the loss, and what became of gradients at it."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._scale: Tensor = None
        self._growth: Tensor = None
        self._inverse: Tensor = None
        self._hooked: set[int] = set()

    def watch(self, optimizer: Optimizer) -> None:
        """The optimizer's parameters get true gradients from now on."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad and id(parameter) not in self._hooked:
                    self._hooked.add(id(parameter))
                    parameter.register_hook(self._true)

    def _true(self, gradient: Tensor) -> Tensor:
        if self._inverse is None:
            return None  # Not a backward pass of the script's own.
        return gradient * self._inverse.to(gradient.dtype)

    def around_backward(self, run: Backward, tensors: Any, grad_tensors: Any) -> Any:
        """Runs backward with everything scaled."""
        torch = self._torch
        roots = (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors)
        if not roots:
            return run(tensors, grad_tensors)
        if self._scale is None:
            device = roots[0].device
            self._scale = torch.full((), FIRST_SCALE, dtype=torch.float32, device=device)
            self._growth = torch.zeros((), dtype=torch.int32, device=device)
        self._inverse = self._scale.double().reciprocal().float()
        if grad_tensors is None:
            grad_tensors = (None,) * len(roots)
        elif isinstance(grad_tensors, torch.Tensor):
            grad_tensors = (grad_tensors,)
        try:
            # A factor in front of each root, so that a half-precision root overflows here and not in what it is of.
            scaled = tuple(it * self._scale for it in roots)
            return run(scaled, tuple(grad_tensors))
        finally:
            self._inverse = None

    def unless_overflown(self, hook_step: Function) -> Function:
        """Every optimizer's `step`, left out when a gradient is not finite."""
        torch = self._torch

        def hooked(step: Function) -> Function:
            step = hook_step(step)

            @functools.wraps(step)
            def checked(optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
                if self._scale is None:
                    return step(optimizer, *args, **kwargs)
                gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
                overflown = torch.zeros((), dtype=torch.float32, device=self._scale.device)
                one = torch.ones_like(overflown)
                kinds = {(it.device, it.dtype) for it in gradients}
                for kind in kinds:
                    same = [it for it in gradients if (it.device, it.dtype) == kind]
                    torch._amp_foreach_non_finite_check_and_unscale_(same, overflown, one)
                is_finite = not overflown.item()
                torch._amp_update_scale_(self._scale, self._growth, overflown, 2.0, 0.5, PATIENCE)
                if is_finite:
                    return step(optimizer, *args, **kwargs)
                return None

            return checked

        return hooked
