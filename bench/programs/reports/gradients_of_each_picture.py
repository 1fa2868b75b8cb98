"""The gradient of each picture of a batch by `vmap`: all of them at once."""
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torchvision.models import resnet101

net = resnet101(norm_layer=lambda width: nn.GroupNorm(32, width)).eval().cuda()
weights = {name: it.detach() for name, it in net.named_parameters()}


def loss_of(weights, x, y):
    return nn.functional.cross_entropy(functional_call(net, weights, (x.unsqueeze(0),)), y.unsqueeze(0))


norms = []
for batch in range(20):
    x, y = torch.rand(32, 3, 224, 224).cuda(), torch.randint(1000, (32,)).cuda()
    each = vmap(grad(loss_of), (None, 0, 0))(weights, x, y)
    norms.append(sum(it.flatten(1).square().sum(1) for it in each.values()).sqrt().cpu())
print(torch.cat(norms).mean())
