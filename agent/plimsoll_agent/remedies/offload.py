"""Activations wait in pinned memory of the host between forward and backward.

Saves what the forward pass keeps, except parameters and small tensors; costs two copies over the link. The
numbers are the same.

Parameters: `smallest`, in bytes: smaller tensors stay (1 MiB unless given).
"""

from plimsoll_agent.remedies.host import Host


def apply(torch, parameters, places, note):
    smallest = parameters.get("smallest", 1 << 20)
    host = Host(torch)

    def pack(tensor):
        if tensor.numel() * tensor.element_size() < smallest or _is_parameter(torch, tensor):
            return None, tensor
        if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
            return None, tensor
        return tensor.device, host.send(tensor)

    def unpack(packed):
        device, kept = packed
        return kept if device is None else host.fetch(kept, device)

    def around(module, call, args, kwargs):
        if not places.is_training(module):
            return call(*args, **kwargs)
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return call(*args, **kwargs)

    places.around_call(around)


def _is_parameter(torch, tensor):
    base = tensor._base if tensor._is_view() else tensor
    return base is not None and base.is_leaf and (base.requires_grad or isinstance(base, torch.nn.Parameter))
