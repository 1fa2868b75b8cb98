"""A layer of its own keeps its output as an attribute of ctx, for its backward pass (pytorch/pytorch#25340, #5569)."""
import torch
from torch import nn


class Squash(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.tanh()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return grad * (1 - y * y)


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, x):
        return Squash.apply(self.dense(x))


net = nn.Sequential(nn.Linear(256, 1024), *[Layer(1024) for _ in range(6)], nn.Linear(1024, 10)).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.01)
for step in range(20000):
    x = torch.randn(512, 256, device="cuda")
    y = torch.randint(0, 10, (512,), device="cuda")
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
