"""Tensors that wait in pinned memory of the host.

On the phantom nothing waits there: what the device gives back is what counts. The copies that were left out are
counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent.run import meter
from plimsoll_agent.values import phantom

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Tensor, Torch


class Host:
    """Takes tensors in and gives them back."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._on_phantom = phantom.is_here()

    def send(self, tensor: Tensor, kept: Tensor | None = None) -> Tensor:
        """The host copy of a tensor on a device; `kept` is its earlier copy, if there is one."""
        torch = self._torch
        if self._on_phantom:
            meter.moved.add(tensor.numel() * tensor.element_size())
            return torch.empty_like(tensor, device="meta")
        if kept is None:
            # Without gaps, as it will be on the device again.
            kept = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
        return kept.copy_(tensor)

    def room(self, like: Tensor, shape: Any) -> Tensor:
        """A place for a tensor of this shape, of the kind of `like`."""
        torch = self._torch
        if self._on_phantom:
            return torch.empty(shape, dtype=like.dtype, device="meta")
        return torch.empty(shape, dtype=like.dtype, pin_memory=like.is_cuda)

    def fetch(self, kept: Tensor, device: Any) -> Tensor:
        """The tensor on its device again."""
        torch = self._torch
        if kept.device.type == "meta":
            meter.moved.add(kept.numel() * kept.element_size())
            return torch.empty_like(kept, device=device)
        return kept.to(device, non_blocking=kept.is_pinned())


def is_parameter(torch: Torch, tensor: Tensor) -> bool:
    """Whether this is a parameter, or a view of one: it stays where it is in any case."""
    base = tensor._base if tensor._is_view() else tensor
    return base is not None and base.is_leaf and (base.requires_grad or isinstance(base, torch.nn.Parameter))


def to_keep(tensor: Tensor) -> Tensor:
    """The same for a function that autograd hands what it saves: the very tensor would hold the graph that holds it, and a graph without a
    backward pass would never go."""
    return tensor if tensor.is_leaf else tensor.detach()


def before_expansion(tensor: Tensor) -> Tensor:
    """Each value once: an expanded tensor has the same ones many times over."""
    steps = tensor.stride()
    if 0 not in steps:
        return tensor
    return tensor.detach().as_strided([1 if step == 0 else n for n, step in zip(tensor.size(), steps)], steps)
