"""The states that the ranks of a `ZeroRedundancyOptimizer` send each other before a checkpoint.

They go as bytes from device to device, and on a phantom none arrive. Another rank is assumed to send states like those of this
rank, for the parameters of its own part.
"""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Library, Named, Tensor, Torch

MODULE = "torch.distributed.optim.zero_redundancy_optimizer"


def wrap(module: Library) -> None:
    """Takes its place in `module`, which is `MODULE`."""
    torch, dist = sys.modules["torch"], module.dist
    send, consolidate = module._broadcast_object, module.ZeroRedundancyOptimizer.consolidate_state_dict
    telling = []

    def consolidate_state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
        telling.append(self)
        try:
            return consolidate(self, *args, **kwargs)
        finally:
            telling.pop()

    def _broadcast_object(obj: Any, src_rank: Any, group: Any = dist.group.WORLD, device: Any = torch.device("cpu")) -> Any:  # noqa: B008 - As PyTorch has it.
        if not telling or src_rank == dist.get_rank() or torch.device(device).type != "cuda":
            return send(obj, src_rank, group, device)
        buffer = io.BytesIO()
        torch.save(_state_of(torch, telling[-1], dist.get_group_rank(group, src_rank)), buffer)
        # What the one who receives does, in the same order: the length, the bytes, the tensors in them.
        length = torch.LongTensor([buffer.tell()]).to(device)
        dist.broadcast(length, src=src_rank, group=group)
        data = torch.empty([buffer.tell()], dtype=torch.uint8, device=device)
        dist.broadcast(data, src=src_rank, group=group)
        buffer.seek(0)
        return torch.load(buffer, map_location=device, weights_only=False)

    patch.put(module, "_broadcast_object", _broadcast_object)
    patch.put(module.ZeroRedundancyOptimizer, "consolidate_state_dict", consolidate_state_dict)


def _state_of(torch: Torch, zero: Any, rank: int) -> Named:
    """The state dictionary of the optimizer on another rank of `zero`."""
    own = zero.optim.state_dict()
    example: tuple[Tensor, Any] | None = next(iter(zero.optim.state.items()), None)
    states: dict[int, Any]
    groups: list[Any]
    groups, states = [], {}
    for ours, theirs in zip(own["param_groups"], zero._partition_parameters()[rank]):
        params = theirs["params"]
        first = sum(len(it["params"]) for it in groups)
        groups.append({**ours, "params": list(range(first, first + len(params)))})
        if example:
            states.update((first + i, _state_like(torch, *example, it)) for i, it in enumerate(params))
    return {"state": states, "param_groups": groups}


def _state_like(torch: Torch, param: Tensor, state: Any, theirs: Any) -> Named:
    """What `state` is of `param`, of another parameter."""

    def like(value: Any) -> Any:
        if torch.is_tensor(value) and value.shape == param.shape:
            return torch.zeros(theirs.shape, dtype=value.dtype)
        return value

    return {name: like(value) for name, value in state.items()}
