"""What training needs while half of the weights are pruned, as `torch.nn.utils.prune` does it.

Never part of a plan: on the phantom only, for the advice of `plimsoll fit`, where it shows that zeros take as much memory as
other numbers. Each pruned layer keeps its weights, a mask of them, and their product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plimsoll_agent.remedies.support.linear_layers import is_transposed_linear
from plimsoll_agent.run.refusal import CannotApply

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Module, Named, Note, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    from torch.nn.utils import prune

    def prepare(module: Module) -> None:
        layers = [it for it in module.modules() if _is_prunable(torch, it)]
        if not layers:
            raise CannotApply(
                "plimsoll: the advice pruning does not suit %s: it has no linear layers and no convolutions"
                % type(module).__name__
            )
        for it in layers:
            prune.l1_unstructured(it, "weight", amount=0.5)

    hooks.before_training(prepare)


def _is_prunable(torch: Torch, layer: Module) -> bool:
    nn = torch.nn
    return type(layer) in (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d) or is_transposed_linear(layer)
