"""Activations wait in pinned memory of the host between forward and backward.

Saves what the forward pass keeps, except parameters and small tensors; costs two copies over the link. The
numbers are the same.

Parameters: `smallest`, in bytes: smaller tensors stay (1 MiB unless given).
"""

from plimsoll_agent.remedies.support.host import Host


def apply(torch, parameters, hooks, note):
    smallest = parameters.get("smallest", 1 << 20)
    host = Host(torch)

    def pack(tensor):
        if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or _is_parameter(torch, tensor):
            return None, tensor, None
        told_once = _before_expansion(tensor)
        if told_once.numel() * told_once.element_size() < smallest:
            return None, tensor, None
        return tensor.device, host.send(told_once), tensor.size()

    def unpack(packed):
        device, kept, size = packed
        return kept if device is None else host.fetch(kept, device).expand(size)

    def around(module, call, args, kwargs):
        if not hooks.is_training(module, (args, kwargs)):
            return call(*args, **kwargs)
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return call(*args, **kwargs)

    hooks.around_call(around)


def _before_expansion(tensor):
    """Each value once: an expanded tensor has the same ones many times over."""
    steps = tensor.stride()
    if 0 not in steps:
        return tensor
    return tensor.detach().as_strided([1 if step == 0 else n for n, step in zip(tensor.size(), steps)], steps)


def _is_parameter(torch, tensor):
    base = tensor._base if tensor._is_view() else tensor
    return base is not None and base.is_leaf and (base.requires_grad or isinstance(base, torch.nn.Parameter))
