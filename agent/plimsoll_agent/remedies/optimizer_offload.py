"""The optimizer's state lives in pinned memory of the host and comes to the device for some parameters at a time.

Saves what the optimizer keeps; costs two copies of it over the link in each step. The numbers are the same: each
parameter is updated by the optimizer's own code; one that is larger than a chunk (a large embedding) some rows at a time, where
the optimizer looks at each number by itself. Not for optimizers that look at all parameters at once (L-BFGS).

Parameters: `chunk`, in bytes of parameters that are updated together (64 MiB unless given).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from plimsoll_agent.remedies.support.host import Host
from plimsoll_agent.remedies.support.optimizers import bytes_of, update_in_chunks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plimsoll_agent.kinds import Function, Note, Optimizer, Parameters, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks

ELEMENTWISE = ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "SGD")
"""PyTorch's optimizers that look at each number of a parameter by itself."""


def apply(torch: Torch, parameters: Parameters, hooks: Hooks, note: Note) -> None:
    away = Away(torch)

    @contextlib.contextmanager
    def here(optimizer: Optimizer, chunk: list[Tensor]) -> Iterator[None]:
        away.fetch(optimizer, chunk)
        yield
        away.send(optimizer, chunk)

    elementwise = {getattr(torch.optim, it) for it in ELEMENTWISE}

    def in_slices(optimizer: Optimizer, parameter: Tensor, most: int, step: Function) -> bool:
        gradient = parameter.grad
        is_plain = parameter.dim() > 1 and parameter.is_contiguous() and gradient.layout is torch.strided
        if not is_plain or type(optimizer) not in elementwise:
            return False
        rows = max(1, most * len(parameter) // bytes_of(parameter))
        whole = optimizer.state.pop(parameter, {})
        updated: dict[str, Any] = {}
        for start in range(0, len(parameter), rows):
            updated = _updated_slice(torch, away, optimizer, parameter, slice(start, start + rows), whole, updated, step)
        optimizer.state[parameter] = updated
        return True

    update_in_chunks(torch, "optimizer-offload", parameters, here, in_slices)


def _updated_slice(
    torch: Torch, away: Away, optimizer: Optimizer, parameter: Tensor, rows: Any, before: Any, after: Any, step: Function
) -> Any:
    """Updates some rows of a parameter; the state that is kept for all of it, of which `before` is what was and `after` what is
    done of it."""
    part = parameter.detach()[rows]
    part.grad = parameter.grad[rows]
    is_whole = {name: away.is_large(it) and it.shape == parameter.shape for name, it in before.items()}
    state = {name: away.host.fetch(it[rows], part.device) if is_whole[name] else _copy(torch, it) for name, it in before.items()}
    if state:
        optimizer.state[part] = state
    optimizer.param_groups = [dict(optimizer.param_groups[0], params=[part])]
    step(optimizer)
    for name, it in optimizer.state.pop(part, {}).items():
        if not away.is_large(it) or it.shape != part.shape:
            after[name] = it
            continue
        if name not in after:
            after[name] = before[name] if is_whole.get(name) and before[name].device != part.device else away.host.room(it, parameter.shape)
        away.host.send(it, after[name][rows])
    return after


def _copy(torch: Torch, value: Any) -> Any:
    """What each part of a parameter counts for itself, as the number of its steps."""
    return value.clone() if isinstance(value, torch.Tensor) else value


class Away:
    """The state of parameters, here and away."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self.host = Host(torch)
        self._kept: dict[tuple[int, str], Any] = {}

    def fetch(self, optimizer: Optimizer, parameters: Sequence[Tensor]) -> None:
        """The state of these parameters comes to their device."""
        for parameter, state in self._states(optimizer, parameters):
            for name, value in state.items():
                if self.is_large(value) and value.device != parameter.device:
                    self._kept[id(parameter), name] = value
                    state[name] = self.host.fetch(value, parameter.device)

    def send(self, optimizer: Optimizer, parameters: Sequence[Tensor]) -> None:
        """And goes back."""
        for parameter, state in self._states(optimizer, parameters):
            for name, value in state.items():
                if self.is_large(value) and value.device.type == "cuda":
                    state[name] = self.host.send(value, self._kept.pop((id(parameter), name), None))

    def _states(self, optimizer: Optimizer, parameters: Sequence[Tensor]) -> list[Any]:
        return [(it, optimizer.state[it]) for it in parameters if it in optimizer.state]

    def is_large(self, value: Any) -> bool:
        return isinstance(value, self._torch.Tensor) and value.dim() > 0
