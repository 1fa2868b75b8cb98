"""Calls of a model in evaluation mode (`model.eval()`) keep no activations: they run under `no_grad`.

The numbers are the same. Not for scripts that need gradients of a model in evaluation mode (adversarial
examples, a frozen network inside another loss, training in evaluation mode): there backward fails, and says so, or the
optimizer's step does.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent.run.refusal import unsuited

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Arguments, Function, Module, Named, Note, Optimizer, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    trained: weakref.WeakSet[Any]
    evaluated: weakref.WeakSet[Any]
    evaluated, trained = weakref.WeakSet(), weakref.WeakSet()

    def around(module: Module, call: Function, args: Arguments, kwargs: Named) -> Any:
        if not torch.is_grad_enabled():
            return call(*args, **kwargs)
        if module.training:
            trained.add(module)
            return call(*args, **kwargs)
        evaluated.add(module)
        with torch.no_grad():
            return call(*args, **kwargs)

    def before_step(optimizer: Optimizer, *_: Any) -> None:
        """What an optimizer steps over was called in training mode since its last step, if it was called at all."""
        if not evaluated:
            return
        stepped = {id(it) for group in optimizer.param_groups for it in group["params"]}
        with_gradients = {id(it) for module in trained for it in module.parameters()}
        for seen in (evaluated, trained):
            for module in list(seen):
                own = {id(it) for it in module.parameters()} & stepped
                if own:
                    seen.discard(module)
                if own and not own & with_gradients:
                    raise unsuited(
                        "no-grad-evaluation",
                        "this script: it trains %s in evaluation mode; if that is not intended, call its train() "
                        "before training" % type(module).__name__
                    )

    hooks.around_call(around)
    from torch.optim import optimizer

    optimizer.register_optimizer_step_pre_hook(before_step)
