"""Each parameter is updated as soon as its gradient is complete, and the gradient is given back.

Saves the gradients, which otherwise wait for the optimizer all together. The numbers are the same. Not for
scripts that look at gradients between backward and step: clipping, `GradScaler`, accumulation over several
backward passes; those are noticed and refused.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.refusal import unsuited

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Function, Named, Note, Optimizer, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    optimizer_class = torch.optim.Optimizer
    stepped_since = set()
    hooked = set()

    def hook_up(optimizer: Optimizer) -> None:
        if isinstance(optimizer, torch.optim.LBFGS):
            raise unsuited("optimizer-in-backward", "this script: L-BFGS needs all gradients at once")
        groups = optimizer.param_groups
        for group in groups:
            for parameter in group["params"]:
                if parameter.requires_grad and id(parameter) not in hooked:
                    hooked.add(id(parameter))
                    parameter.register_post_accumulate_grad_hook(functools.partial(update, weakref.ref(optimizer)))

    def update(reference: Any, parameter: Tensor) -> None:
        optimizer = reference()
        if optimizer is None:
            return
        if id(parameter) in stepped_since:
            raise unsuited(
                "optimizer-in-backward",
                "this script: it runs backward more than once before a step (gradient accumulation, or several losses "
                "that use the same parameters)"
            )
        stepped_since.add(id(parameter))
        everything = optimizer.param_groups
        mine = [group for group in everything if any(it is parameter for it in group["params"])]
        optimizer.param_groups = [dict(mine[0], params=[parameter])]
        try:
            with torch.no_grad():
                inspect.unwrap(type(optimizer).step)(optimizer)
        finally:
            optimizer.param_groups = everything
        parameter.grad = None

    make = optimizer_class.__init__

    def __init__(self: Any, params: Any, defaults: Named) -> None:
        make(self, params, defaults)
        hook_up(self)

    def refuse(name: str) -> Function:
        def refused(*args: Any, **kwargs: Any) -> None:
            raise unsuited(
                "optimizer-in-backward",
                "this script: it calls %s, which needs all gradients at once" % name
            )

        return refused

    patch.put(optimizer_class, "__init__", __init__)
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        patch.put(torch.nn.utils, name, refuse(name))
        patch.put(torch.nn.utils.clip_grad, name, refuse(name))
    patch.put(torch.amp.GradScaler, "unscale_", refuse("GradScaler.unscale_"))

    # Called at the end of the script's own step, not of the steps inside backward: those call the bare function.
    optimizers = importlib.import_module("torch.optim.optimizer")
    optimizers.register_optimizer_step_post_hook(lambda *_: stepped_since.clear())
