"""The optimizer's state lives in pinned memory of the host and comes to the device for some parameters at a time.

Saves what the optimizer keeps; costs two copies of it over the link in each step. The numbers are the same: each
parameter is updated by the optimizer's own code. Not for optimizers that look at all parameters at once (L-BFGS).

Parameters: `chunk`, in bytes of parameters that are updated together (64 MiB unless given).
"""

import contextlib

from plimsoll_agent.remedies.support.host import Host
from plimsoll_agent.remedies.support.optimizers import update_in_chunks


def apply(torch, parameters, hooks, note):
    away = Away(torch)

    @contextlib.contextmanager
    def here(optimizer, chunk):
        away.fetch(optimizer, chunk)
        yield
        away.send(optimizer, chunk)

    update_in_chunks(torch, "optimizer-offload", parameters, here)


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
