"""Optimizers that go through the parameters one by one, instead of all at once (`foreach=False`).

Saves the temporaries of the optimizer's step, which are as large as the parameters; costs many small kernels.
The numbers are the same. `clip_grad_norm_` is told the same.
"""

import functools


def apply(torch, parameters, places, note):
    set_in_optimizers(torch, foreach=False, fused=None)
    utils = torch.nn.utils
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        clip = getattr(utils.clip_grad, name)

        @functools.wraps(clip)
        def wrapped(*args, clip=clip, **kwargs):
            if kwargs.get("foreach") is None and len(args) < 5:
                kwargs["foreach"] = False
            return clip(*args, **kwargs)

        setattr(utils, name, wrapped)
        setattr(utils.clip_grad, name, wrapped)


def set_in_optimizers(torch, **values):
    """Every optimizer made from now on has these options, if it has them at all and the script left them open."""
    optimizer_class = torch.optim.Optimizer
    make = optimizer_class.__init__

    @functools.wraps(make)
    def __init__(self, params, defaults):
        if isinstance(defaults, dict):
            left_open = not defaults.get("foreach") and not defaults.get("fused")
            for name, value in values.items():
                if name in defaults and value is not None and left_open:
                    defaults[name] = value
        make(self, params, defaults)

    optimizer_class.__init__ = __init__
