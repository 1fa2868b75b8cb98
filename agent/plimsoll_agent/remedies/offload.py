"""Activations wait in pinned host memory between the forward and the backward pass.

Saves what the forward pass and the loss keep, except parameters and small tensors; costs two copies over the link. The
numbers are the same.

Parameters: `smallest`, in bytes: smaller tensors stay (1 MiB unless given).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent.remedies.support.host import Host, before_expansion, is_parameter, to_keep

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Named, Note, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    smallest = parameters.get("smallest", 1 << 20)
    host = Host(torch)

    def pack(tensor: Tensor) -> tuple[Any, Any, Any]:
        if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or is_parameter(torch, tensor):
            return None, to_keep(tensor), None
        told_once = before_expansion(tensor)
        if told_once.numel() * told_once.element_size() < smallest:
            return None, to_keep(tensor), None
        return tensor.device, host.send(told_once), tensor.size()

    def unpack(packed: Any) -> Any:
        device, kept, size = packed
        return kept if device is None else host.fetch(kept, device).expand(size)

    # Below what the script or another remedy puts there, and for good: a loss is often no model's.
    torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)
