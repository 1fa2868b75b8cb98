"""Optimizers that go through the parameters one by one, instead of all at once (`foreach=False`).

Saves the temporaries of the optimizer's step, which are as large as the parameters; costs many small kernels.
The numbers are the same. `clip_grad_norm_` gets `foreach=False`, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.remedies.support.optimizers import set_in_optimizers

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Function, Named, Note, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    set_in_optimizers(torch, foreach=False, fused=None)
    utils = torch.nn.utils
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        clip = getattr(utils.clip_grad, name)

        def wrapped(*args: Any, clip: Function = clip, **kwargs: Any) -> Any:
            if kwargs.get("foreach") is None and len(args) < 5:
                kwargs["foreach"] = False
            return clip(*args, **kwargs)

        patch.put(utils, name, wrapped)
        patch.put(utils.clip_grad, name, wrapped)
