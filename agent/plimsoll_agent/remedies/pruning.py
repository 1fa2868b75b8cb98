"""What training takes while half of the weights are pruned, as `torch.nn.utils.prune` does it.

Never part of a plan: on the phantom only, for the advice of `plimsoll fit`, where it shows that zeros take as much memory as
other numbers. Each pruned layer keeps its weights, a mask of them, and their product.
"""

import weakref

from plimsoll_agent.remedies import CannotApply


def apply(torch, parameters, places, note):
    from torch.nn.utils import prune

    prepared = weakref.WeakSet()

    def around(module, call, args, kwargs):
        if module not in prepared and places.is_training(module):
            prepared.add(module)
            layers = [it for it in module.modules() if _is_prunable(torch, it)]
            if not layers:
                raise CannotApply(
                    "plimsoll: the advice pruning does not suit %s: it has no linear layers and no convolutions"
                    % type(module).__name__
                )
            for it in layers:
                prune.l1_unstructured(it, "weight", amount=0.5)
        return call(*args, **kwargs)

    places.around_call(around)


def _is_prunable(torch, layer):
    nn = torch.nn
    if type(layer) in (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d):
        return True
    # transformers' own linear layer
    return type(layer).__name__ == "Conv1D" and getattr(getattr(layer, "weight", None), "dim", int)() == 2
