"""Tensors that wait in pinned memory of the host.

On the phantom nothing waits there: what the device gives back is what counts. While a step is metered the copies are
made all the same, through one buffer, so that they are counted.
"""

import os

from plimsoll_agent import phantom


class Host:
    """Takes tensors in and gives them back."""

    def __init__(self, torch):
        self._torch = torch
        self._on_phantom = phantom.is_here()
        self._counts = bool(os.environ.get("PLIMSOLL_METER"))
        self._buffer = None

    def send(self, tensor, kept=None):
        """What to keep of a tensor on a device; `kept` is where it was before, if anywhere."""
        torch = self._torch
        if self._on_phantom:
            if self._counts:
                self._through(tensor).copy_(tensor)
            return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")
        if kept is None:
            size, stride = tensor.size(), tensor.stride()
            kept = torch.empty_strided(size, stride, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        return kept.copy_(tensor)

    def fetch(self, kept, device):
        """The tensor on its device again."""
        torch = self._torch
        if kept.device.type == "meta":
            tensor = torch.empty_strided(kept.size(), kept.stride(), dtype=kept.dtype, device=device)
            return tensor.copy_(self._through(kept)) if self._counts else tensor
        return kept.to(device, non_blocking=kept.is_pinned())

    def _through(self, tensor):
        size = tensor.numel() * tensor.element_size()
        if self._buffer is None or self._buffer.numel() < size:
            self._buffer = self._torch.empty(size, dtype=self._torch.uint8)
        return self._buffer[:size].view(tensor.dtype).view(tensor.size())
