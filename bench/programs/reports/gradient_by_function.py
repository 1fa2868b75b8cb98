"""Training by `torch.func`: the gradient comes from a function of the weights."""
import torch
from torch import nn
from torch.func import functional_call, grad

net = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(40)], nn.Linear(1024, 10)).cuda()
weights = dict(net.named_parameters())


def loss_of(weights, x, y):
    return nn.functional.cross_entropy(functional_call(net, weights, (x,)), y)


for step in range(100):
    x, y = torch.randn(16384, 1024).cuda(), torch.randint(10, (16384,)).cuda()
    gradients = grad(loss_of)(weights, x, y)
    with torch.no_grad():
        for name, weight in weights.items():
            weight -= 0.01 * gradients[name]
