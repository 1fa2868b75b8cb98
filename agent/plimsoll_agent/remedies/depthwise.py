"""What the model would need with separable convolutions: one kernel for each channel, then a mix of the channels.

Another model than the script's, so it is never part of a plan: on the phantom only, for the advice of `plimsoll fit`. Every
dense convolution that is wider than one pixel becomes two, but for the first, which sees the colours (as in MobileNet,
Howard et al., 2017).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plimsoll_agent.remedies.support.optimizers import made_optimizers
from plimsoll_agent.run.refusal import CannotApply

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Module, Named, Note, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    optimizers = made_optimizers(torch)

    def prepare(module: Module) -> None:
        instead = _separate(torch, module)
        if not instead:
            raise CannotApply(
                "plimsoll: the advice depthwise does not suit %s: it has no dense convolutions but its first"
                % type(module).__name__
            )
        for it in optimizers:
            for group in it.param_groups:
                group["params"] = [new for p in group["params"] for new in instead.get(id(p), [p])]

    hooks.before_training(prepare)


def _separate(torch: Torch, model: Module) -> dict[int, list[Tensor]]:
    """The new weights by the id of the old one."""
    nn = torch.nn
    convolutions = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    dense = [
        it
        for it in model.modules()
        # Not a subclass, nor a layer whose weight something else computes.
        if type(it) in convolutions and it.groups == 1 and max(it.kernel_size) > 1 and it.in_channels > 1
    ]
    pairs = {it: _pair(nn, it) for it in dense[1:]}
    if not pairs:
        return {}
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child in pairs:
                parent._modules[name] = pairs[child]
    return {id(it.weight): [pair[0].weight, pair[1].weight] for it, pair in pairs.items()}


def _pair(nn: Torch, it: Module) -> Module:
    options = {"device": it.weight.device, "dtype": it.weight.dtype}
    kernels = type(it)(
        it.in_channels,
        it.in_channels,
        it.kernel_size,
        stride=it.stride,
        padding=it.padding,
        dilation=it.dilation,
        padding_mode=it.padding_mode,
        groups=it.in_channels,
        bias=False,
        **options,
    )
    mix = type(it)(it.in_channels, it.out_channels, 1, bias=False, **options)
    for layer in (kernels, mix):
        layer.weight.requires_grad_(it.weight.requires_grad)
    mix.bias = it.bias
    return nn.Sequential(kernels, mix).train(it.training)
