"""A batch norm of our own; memory grows with each batch although the loss is printed as a number (pytorch#20275)."""
import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, width, momentum=0.1):
        super().__init__()
        self.momentum = momentum
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, x):
        if self.training:
            mean = x.mean((0, 2, 3))
            var = x.var((0, 2, 3), unbiased=False)
            self.running_mean = (1 - self.momentum) * self.running_mean + self.momentum * mean.detach()
            self.running_var = (1 - self.momentum) * self.running_var + self.momentum * x.var((0, 2, 3)).detach()
        else:
            mean, var = self.running_mean, self.running_var
        x = (x - mean[:, None, None]) / (var[:, None, None] + 1e-5).sqrt()
        return x * self.weight[:, None, None] + self.bias[:, None, None]


def block(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, 2, 1, bias=False), Norm(b), nn.ReLU())


net = nn.Sequential(block(3, 64), block(64, 128), block(128, 256), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 100)).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
for step in range(5000):
    x = torch.randn(32, 3, 128, 128, device="cuda")
    y = torch.randint(100, (32,), device="cuda")
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item())
