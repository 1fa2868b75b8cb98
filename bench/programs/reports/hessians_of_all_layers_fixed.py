"""Quantisation: each linear layer's inputs are added up to a Hessian matrix, block by block."""
import torch
from torch import nn

model = nn.Sequential(*[nn.Sequential(nn.Linear(4096, 11008), nn.SiLU(), nn.Linear(11008, 4096)) for _ in range(24)]).half().cuda()
hessians = {}


def add(layer, args, output):
    x = args[0].flatten(0, -2).float()
    if layer not in hessians:
        hessians[layer] = torch.zeros(x.shape[1], x.shape[1], device="cuda")
    hessians[layer] += x.T @ x


with torch.no_grad():
    texts = [torch.randn(1, 2048, 4096).half() for _ in range(8)]
    for block in model:
        hooks = [block[0].register_forward_hook(add), block[2].register_forward_hook(add)]
        texts = [block(text.cuda()).cpu() for text in texts]
        for hook in hooks:
            hook.remove()
        for layer in (block[0], block[2]):
            hessian = hessians.pop(layer)
            scale = layer.weight.abs().amax(1, keepdim=True) / 7
            layer.weight.copy_((layer.weight / scale).round() * scale)
