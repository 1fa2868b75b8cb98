"""cause: size/one-allocation at line 21
also right: size/activations
memory: 3GiB
why: private training wants a gradient for each sample: 128 times the parameters at once.
"""
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

net = nn.Sequential(nn.Linear(1024, 2048), nn.Tanh(), nn.Linear(2048, 2048), nn.Tanh(), nn.Linear(2048, 10)).cuda()
weights = {name: it.detach() for name, it in net.named_parameters()}


def loss_of(weights, x, y):
    return nn.functional.cross_entropy(functional_call(net, weights, (x[None],)), y[None])


gradients_of = vmap(grad(loss_of), in_dims=(None, 0, 0))
for step in range(10):
    x, y = torch.randn(128, 1024, device="cuda"), torch.randint(0, 10, (128,), device="cuda")
    each = gradients_of(weights, x, y)  # here
    norms = torch.stack([it.flatten(1).norm(dim=1) for it in each.values()]).norm(dim=0)
    scale = (1.0 / norms).clamp(max=1.0)
    total = {name: torch.einsum("n,n...->...", scale, it) for name, it in each.items()}
    for name, it in weights.items():
        it -= 0.1 * (total[name] + 0.01 * torch.randn_like(it)) / 128
