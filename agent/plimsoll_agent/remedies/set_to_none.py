"""`zero_grad` gives gradients back instead of filling them with zeros. The numbers are the same, except for
optimizers with momentum or weight decay and parameters that got no gradient in a step: those are left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Function, Named, Note, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    for owner in (torch.optim.Optimizer, torch.nn.Module):
        zero_grad = owner.zero_grad

        def wrapped(self: Any, set_to_none: bool = True, zero_grad: Function = zero_grad) -> Any:
            return zero_grad(self, set_to_none=True)

        patch.put(owner, "zero_grad", wrapped)
