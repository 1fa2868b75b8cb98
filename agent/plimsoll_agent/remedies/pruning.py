"""What training takes while half of the weights are pruned, as `torch.nn.utils.prune` does it.

Never part of a plan: on the phantom only, for the advice of `plimsoll fit`, where it shows that zeros take as much memory as
other numbers. Each pruned layer keeps its weights, a mask of them, and their product.
"""

from plimsoll_agent.remedies.support.linear_layers import is_transposed_linear
from plimsoll_agent.run.refusal import CannotApply


def apply(torch, parameters, hooks, note):
    from torch.nn.utils import prune

    def prepare(module):
        layers = [it for it in module.modules() if _is_prunable(torch, it)]
        if not layers:
            raise CannotApply(
                "plimsoll: the advice pruning does not suit %s: it has no linear layers and no convolutions"
                % type(module).__name__
            )
        for it in layers:
            prune.l1_unstructured(it, "weight", amount=0.5)

    hooks.before_training(prepare)


def _is_prunable(torch, layer):
    nn = torch.nn
    return type(layer) in (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d) or is_transposed_linear(layer)
