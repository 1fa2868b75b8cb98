"""An adapter is merged: first all products of all layers, then the sums (modelscope/ms-swift#7182, shuxueslpi/chatGLM-6B-QLoRA#47)."""
import torch
from torch import nn

base = nn.ModuleList(nn.Linear(4096, 4096, bias=False) for _ in range(96)).half().cuda()
adapter = {n: (torch.randn(64, 4096).cuda(), torch.randn(4096, 64).cuda()) for n in range(96)}
with torch.no_grad():
    deltas = {n: 0.5 * (up @ down) for n, (down, up) in adapter.items()}
    for n, layer in enumerate(base):
        layer.weight += deltas[n].half()
torch.save({n: it.weight.cpu() for n, it in enumerate(base)}, "/dev/null")
