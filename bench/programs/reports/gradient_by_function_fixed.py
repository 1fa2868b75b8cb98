"""Training by `torch.func`: the loss is a function of the weights, and autograd makes its gradient."""
import torch
from torch import nn
from torch.func import functional_call

net = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(40)], nn.Linear(1024, 10)).cuda()
weights = dict(net.named_parameters())


def loss_of(weights, x, y):
    return nn.functional.cross_entropy(functional_call(net, weights, (x,)), y)


for step in range(100):
    x, y = torch.randn(16384, 1024).cuda(), torch.randint(10, (16384,)).cuda()
    gradients = dict(zip(weights, torch.autograd.grad(loss_of(weights, x, y), list(weights.values()))))
    with torch.no_grad():
        for name, weight in weights.items():
            weight -= 0.01 * gradients[name]
