"""What a model whose frozen linear layers are whole numbers of 8 bits would take; together with `lora`.

Never part of a plan: on the phantom only, for the advice of `plimsoll fit`. A layer's weight is made wide again where it
is used, forward and backward, and is not kept so.
"""

import types

from plimsoll_agent.remedies.support.linear_layers import linear_layers


def apply(torch, parameters, hooks, note):
    product = _function(torch)

    def prepare(module):
        for layer, _, _ in linear_layers(torch, module):
            _quantize(torch, layer, product, is_transposed=type(layer) is not torch.nn.Linear)

    # Inside of lora's, which freezes the weights first.
    hooks.before_training(prepare)


def _quantize(torch, layer, product, is_transposed):
    weight = layer.weight.detach()
    scale = weight.abs().amax() / 127
    small = (weight / scale).round().to(torch.int8)
    layer.weight.data = small.new_empty(0).to(weight.dtype)
    layer.small, layer.scale = small.t().contiguous() if is_transposed else small, scale

    def forward(self, input):
        output = product.apply(input, self.small, self.scale)
        return output if self.bias is None else output + self.bias.to(output.dtype)

    layer.forward = types.MethodType(forward, layer)


def _function(torch):
    def wide(small, scale, dtype):
        return small.to(dtype) * scale.to(dtype)

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, input, small, scale):
            if torch.is_autocast_enabled(input.device.type):
                input = input.to(torch.get_autocast_dtype(input.device.type))
            ctx.save_for_backward(small, scale)
            ctx.given = input.dtype
            return torch.nn.functional.linear(input, wide(small, scale, input.dtype))

        @staticmethod
        def backward(ctx, grad):
            small, scale = ctx.saved_tensors
            return grad @ wide(small, scale, grad.dtype), None, None

    return Product
