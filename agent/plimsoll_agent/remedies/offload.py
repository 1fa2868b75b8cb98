"""Activations wait in pinned memory of the host between forward and backward.

Saves what the forward pass keeps, except parameters and small tensors; costs two copies over the link. The
numbers are the same. On the phantom nothing is copied: what the device gives back is what counts.

Parameters: `smallest`, in bytes: smaller tensors stay (1 MiB unless given).
"""

from plimsoll_agent import meter, phantom


def apply(torch, parameters, places, note):
    smallest = parameters.get("smallest", 1 << 20)
    on_phantom = phantom.is_here()

    def pack(tensor):
        if tensor.numel() * tensor.element_size() < smallest or _is_parameter(torch, tensor):
            return None, tensor
        if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
            return None, tensor
        if on_phantom:
            meter.moved(tensor.numel() * tensor.element_size())
            return tensor.device, (tensor.size(), tensor.stride(), tensor.dtype)
        kept = torch.empty(tensor.size(), dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        kept.copy_(tensor)
        return tensor.device, kept

    def unpack(packed):
        device, kept = packed
        if device is None:
            return kept
        if isinstance(kept, tuple):
            size, stride, dtype = kept
            restored = torch.empty(size, dtype=dtype, device=device)
            meter.moved(restored.numel() * restored.element_size())
            return restored
        return kept.to(device, non_blocking=kept.is_pinned())

    def around(module, call, args, kwargs):
        if not places.is_training(module):
            return call(*args, **kwargs)
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return call(*args, **kwargs)

    places.around_call(around)


def _is_parameter(torch, tensor):
    base = tensor._base if tensor._is_view() else tensor
    return base is not None and base.is_leaf and (base.requires_grad or isinstance(base, torch.nn.Parameter))
