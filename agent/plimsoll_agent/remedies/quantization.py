"""What a model would need whose frozen linear layers are stored as 8-bit integers; together with `lora`.

Never part of a plan: on the phantom only, for the advice of `plimsoll fit`. A layer's weight is made wide again where it
is used, forward and backward, and is not kept so.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from plimsoll_agent.remedies.support.linear_layers import linear_layers

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Module, Named, Note, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    product = _function(torch)

    def prepare(module: Module) -> None:
        for layer, _, _ in linear_layers(torch, module):
            _quantize(torch, layer, product, is_transposed=type(layer) is not torch.nn.Linear)

    # Inside of lora's, which freezes the weights first.
    hooks.before_training(prepare)


def _quantize(torch: Torch, layer: Module, product: Any, is_transposed: bool) -> None:
    weight = layer.weight.detach()
    scale = weight.abs().amax() / 127
    small = (weight / scale).round().to(torch.int8)
    layer.weight.data = small.new_empty(0).to(weight.dtype)
    layer.small, layer.scale = small.t().contiguous() if is_transposed else small, scale

    def forward(self: Any, input: Tensor) -> Any:
        output = product.apply(input, self.small, self.scale)
        return output if self.bias is None else output + self.bias.to(output.dtype)

    layer.forward = types.MethodType(forward, layer)


def _function(torch: Torch) -> type[Any]:
    def wide(small: Any, scale: Any, dtype: Any) -> Any:
        return small.to(dtype) * scale.to(dtype)

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, input: Tensor, small: Any, scale: Any) -> Any:
            if torch.is_autocast_enabled(input.device.type):
                input = input.to(torch.get_autocast_dtype(input.device.type))
            ctx.save_for_backward(small, scale)
            ctx.given = input.dtype
            return torch.nn.functional.linear(input, wide(small, scale, input.dtype))

        @staticmethod
        def backward(ctx: Any, grad: Any) -> tuple[Any, Any, Any]:
            small, scale = ctx.saved_tensors
            return grad @ wide(small, scale, grad.dtype), None, None

    return Product
