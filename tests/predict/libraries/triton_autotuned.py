"""A kernel of Triton that is tuned over its configurations, forward and backward, within a function of autograd."""

import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (64, 128, 256) for warps in (2, 4)]


@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def squared_relu(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.maximum(tl.load(x + at, at < n, 0.0), 0.0)
    tl.store(y + at, value * value, at < n)


@triton.autotune(CONFIGS, key=["n"], reset_to_zero=["out"])
@triton.jit
def slope(x, gradient, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.maximum(tl.load(x + at, at < n, 0.0), 0.0)
    tl.store(out + at, 2.0 * value * tl.load(gradient + at, at < n, 0.0), at < n)


def launch(kernel, *tensors):
    kernel[lambda meta: (triton.cdiv(tensors[0].numel(), meta["BLOCK"]),)](*tensors, tensors[0].numel())


class SquaredReLU(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        y = torch.empty_like(x)
        launch(squared_relu, x, y)
        return y

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        out = torch.empty_like(x)
        launch(slope, x, gradient.contiguous(), out)
        return out


first, second = torch.nn.Linear(256, 1024).cuda(), torch.nn.Linear(1024, 10).cuda()
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], 1e-3)
for _ in range(4):
    hidden = SquaredReLU.apply(first(torch.randn(64, 256, device="cuda")))
    second(hidden).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
