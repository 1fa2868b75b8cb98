"""Weights, gradients, activations and the optimizer's state are bfloat16: half of everything.

The model is converted at its first call, in place: the optimizer's parameters are the same objects. Inputs follow.
Changes the numbers: a weight has 8 bits of mantissa, and an update smaller than 1/256 of it is lost.
"""

import weakref

from plimsoll_agent.run import nested


def apply(torch, parameters, hooks, note):
    converted = weakref.WeakSet()

    def follow(tensor):
        return tensor.to(torch.bfloat16) if tensor.dtype in (torch.float32, torch.float64) else tensor

    def around(module, call, args, kwargs):
        if module not in converted:
            converted.add(module)
            module.to(torch.bfloat16)
        args, kwargs = nested.rebuilt(torch, tuple(args), follow), nested.rebuilt(torch, dict(kwargs), follow)
        return call(*args, **kwargs)

    hooks.around_call(around)
