"""The optimizer's state lives in pinned memory of the host and comes to the device for some parameters at a time.

Saves what the optimizer keeps; costs two copies of it over the link in each step. The numbers are the same: each
parameter is updated by the optimizer's own code. Not for optimizers that look at all parameters at once (L-BFGS).

Parameters: `chunk`, in bytes of parameters that are updated together (64 MiB unless given).
"""

import contextlib
import functools

from plimsoll_agent.remedies import CannotApply
from plimsoll_agent.remedies.host import Host


def apply(torch, parameters, places, note):
    away = Away(torch)

    @contextlib.contextmanager
    def here(optimizer, chunk):
        away.fetch(optimizer, chunk)
        yield
        away.send(optimizer, chunk)

    update_in_chunks(torch, "optimizer-offload", parameters, here)


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
                raise CannotApply("plimsoll: the remedy %s does not suit L-BFGS, whose state is one whole" % remedy)
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


class Away:
    """The state of parameters, here and away."""

    def __init__(self, torch):
        self._torch = torch
        self._host = Host(torch)
        self._kept = {}

    def fetch(self, optimizer, parameters):
        """The state of these parameters comes to their device."""
        for parameter, state in self._states(optimizer, parameters):
            for name, value in state.items():
                if self._is_large(value) and value.device != parameter.device:
                    self._kept[id(parameter), name] = value
                    state[name] = self._host.fetch(value, parameter.device)

    def send(self, optimizer, parameters):
        """And goes back."""
        for parameter, state in self._states(optimizer, parameters):
            for name, value in state.items():
                if self._is_large(value) and value.device.type == "cuda":
                    state[name] = self._host.send(value, self._kept.pop((id(parameter), name), None))

    def _states(self, optimizer, parameters):
        return [(it, optimizer.state[it]) for it in parameters if it in optimizer.state]

    def _is_large(self, value):
        return isinstance(value, self._torch.Tensor) and value.dim() > 0
