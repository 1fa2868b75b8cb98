"""Each layer has a checkpoint."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

net = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(16)]).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(8):
    x = torch.randn(8192, 1024, device="cuda")
    for layer in net:
        x = checkpoint(layer, x, use_reentrant=False)
    loss = x.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
