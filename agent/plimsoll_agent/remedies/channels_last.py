"""Convolutions have their channels last in memory: kernels for tensor cores need no copies in that order any more.

The model's weights are brought into that order once, in place, at its first call; images and volumes that it is given
follow at each call. The numbers are the same up to rounding: other kernels add in another order.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent.run import nested

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Arguments, Function, Module, Named, Note, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def suits(torch: Torch, model: Module) -> bool:
    """Whether there is anything to gain."""
    return any(isinstance(it, _convolutions(torch)) for it in model.modules())


def is_done(torch: Torch, model: Module) -> bool:
    """Whether the weights say that the script did it; a weight of one place, or for one channel, is in both orders."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    weights = [it.weight for it in model.modules() if isinstance(it, _convolutions(torch)) and it.weight.dim() in formats]
    told = [it.is_contiguous() for it in weights if it.is_contiguous() != it.is_contiguous(memory_format=formats[it.dim()])]
    return bool(told) and not any(told)


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    convolves: weakref.WeakKeyDictionary[Module, bool] = weakref.WeakKeyDictionary()
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}

    def ordered(tensor: Tensor) -> Tensor:
        if tensor.dim() not in formats or not tensor.is_floating_point():
            return tensor
        return tensor.contiguous(memory_format=formats[tensor.dim()])

    def prepare(module: Module) -> bool:
        for part in module.modules():
            if isinstance(part, _convolutions(torch)):
                # The optimizer has this very object.
                part.weight.data = ordered(part.weight.data)
                if part.weight.grad is not None:
                    part.weight.grad.data = ordered(part.weight.grad.data)
        return suits(torch, module)

    def around(module: Module, call: Function, args: Arguments, kwargs: Named) -> Any:
        if module not in convolves:
            convolves[module] = prepare(module)
        if convolves[module]:
            args, kwargs = nested.rebuilt(torch, tuple(args), ordered), nested.rebuilt(torch, dict(kwargs), ordered)
        return call(*args, **kwargs)

    hooks.around_call(around)


def _convolutions(torch: Torch) -> tuple[Any, Any, Any, Any]:
    nn = torch.nn
    return (nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.ConvTranspose3d)
