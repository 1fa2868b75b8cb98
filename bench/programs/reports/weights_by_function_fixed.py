"""The same with weights that want no gradient: `grad_and_value` needs none."""
import torch
from torch import nn
from torch.func import functional_call, grad_and_value

net = nn.Sequential(nn.Linear(1024, 2048), nn.Tanh(), nn.Linear(2048, 1024)).cuda()
weights = {name: it.detach() for name, it in net.named_parameters()}


def loss_of(weights, x):
    return functional_call(net, weights, (x,)).square().mean()


for step in range(5000):
    x = torch.randn(64, 1024, device="cuda")
    gradients, loss = grad_and_value(loss_of)(weights, x)
    weights = {name: weights[name] - 0.01 * gradients[name] for name in weights}
    if step % 10 == 0:
        print(step, loss.item())
