"""Explains twelve models one after the other: hooks store the inputs and outputs of each module on the module, and nobody deletes them."""
import torch
from torch import nn


def network():
    return nn.Sequential(nn.Conv1d(4, 512, 21, padding=10), nn.ReLU(), nn.Conv1d(512, 512, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(512, 1))


def store(module, given, output):
    module.input, module.output = given[0].detach(), output.detach()


def attributions(model, x):
    handles = [it.register_forward_hook(store) for it in model.modules() if not isinstance(it, nn.Sequential)]
    x = x.requires_grad_()
    found = torch.autograd.grad(model(x).sum(), x)[0].cpu()
    for handle in handles:
        handle.remove()
    return found


models = [network().cuda().eval() for _ in range(12)]
sequences = torch.zeros(128, 4, 2048)
for model in models:
    print(attributions(model, sequences.cuda()).abs().sum().item())
