"""The optimizers that a script makes: which they are, with other options, or with a step that goes in parts."""

import functools
import weakref

from plimsoll_agent.run.refusal import unsuited


def made_optimizers(torch):
    """Every optimizer that the script makes from now on."""
    made, optimizer_class = weakref.WeakSet(), torch.optim.Optimizer
    original = optimizer_class.__init__

    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        made.add(self)

    optimizer_class.__init__ = __init__
    return made


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


def update_in_chunks(torch, remedy, parameters, here):
    """Every optimizer steps for some parameters at a time, each time within `here(optimizer, chunk)`."""
    optimizer_class = torch.optim.Optimizer
    hook_step = optimizer_class.profile_hook_step
    most = parameters.get("chunk", 64 << 20)

    def in_chunks(step):
        """The bare `step` of a class, so that what PyTorch hooks to a step is called once."""

        @functools.wraps(step)
        def stepped(optimizer, closure=None):
            if isinstance(optimizer, torch.optim.LBFGS):
                raise unsuited(remedy, "L-BFGS, whose state is one whole")
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            groups = optimizer.param_groups
            try:
                for group, chunk in _chunks(groups, most):
                    optimizer.param_groups = [dict(group, params=chunk)]
                    with here(optimizer, chunk):
                        step(optimizer)
            finally:
                optimizer.param_groups = groups
            return loss

        return stepped

    optimizer_class.profile_hook_step = staticmethod(lambda step: hook_step(in_chunks(step)))


def _chunks(groups, most):
    """`(group, parameters)` whose parameters are about `most` bytes, in order."""
    for group in groups:
        chunk, size = [], 0
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            chunk.append(parameter)
            size += parameter.numel() * parameter.element_size()
            if size >= most:
                yield group, chunk
                chunk, size = [], 0
        if chunk:
            yield group, chunk
