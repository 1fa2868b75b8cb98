"""Tensors that wait in pinned memory of the host.

On the phantom nothing waits there: what the device gives back is what counts. The copies that were left out are
counted.
"""

from plimsoll_agent.imitate import phantom
from plimsoll_agent.run import meter


class Host:
    """Takes tensors in and gives them back."""

    def __init__(self, torch):
        self._torch = torch
        self._on_phantom = phantom.is_here()

    def send(self, tensor, kept=None):
        """What to keep of a tensor on a device; `kept` is where it was before, if anywhere."""
        torch = self._torch
        if self._on_phantom:
            meter.moved(tensor.numel() * tensor.element_size())
            return torch.empty_like(tensor, device="meta")
        if kept is None:
            # Without gaps, as it will be on the device again.
            kept = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
        return kept.copy_(tensor)

    def fetch(self, kept, device):
        """The tensor on its device again."""
        torch = self._torch
        if kept.device.type == "meta":
            meter.moved(kept.numel() * kept.element_size())
            return torch.empty_like(kept, device=device)
        return kept.to(device, non_blocking=kept.is_pinned())
