"""Quantisation: each linear layer's inputs are added up to a Hessian matrix, for all layers in one pass over the texts."""
import torch
from torch import nn

model = nn.Sequential(*[nn.Sequential(nn.Linear(4096, 11008), nn.SiLU(), nn.Linear(11008, 4096)) for _ in range(24)]).half().cuda()
hessians = {}


def add(layer, args, output):
    x = args[0].flatten(0, -2).float()
    if layer not in hessians:
        hessians[layer] = torch.zeros(x.shape[1], x.shape[1], device="cuda")
    hessians[layer] += x.T @ x


for layer in model.modules():
    if isinstance(layer, nn.Linear):
        layer.register_forward_hook(add)
with torch.no_grad():
    for text in range(64):
        model(torch.randn(1, 2048, 4096).half().cuda())
    for layer, hessian in hessians.items():
        scale = layer.weight.abs().amax(1, keepdim=True) / 7
        layer.weight.copy_((layer.weight / scale).round() * scale)
