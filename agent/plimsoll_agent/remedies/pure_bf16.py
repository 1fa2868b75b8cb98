"""Weights, gradients, activations and the optimizer's state are bfloat16: half of everything.

The model is converted at its first call, in place: the optimizer's parameters are the same objects. Inputs follow.
Changes the numbers: a weight has 8 bits of mantissa, and an update smaller than 1/256 of it is lost.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent.run import nested

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Arguments, Function, Module, Named, Note, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    converted: weakref.WeakSet[Module] = weakref.WeakSet()

    def follow(tensor: Tensor) -> Tensor:
        return tensor.to(torch.bfloat16) if tensor.dtype in (torch.float32, torch.float64) else tensor

    def around(module: Module, call: Function, args: Arguments, kwargs: Named) -> Any:
        if module not in converted:
            converted.add(module)
            module.to(torch.bfloat16)
        args, kwargs = nested.rebuilt(torch, tuple(args), follow), nested.rebuilt(torch, dict(kwargs), follow)
        return call(*args, **kwargs)

    hooks.around_call(around)
