"""cause: size/activations at line 10
memory: 2GiB 3GiB
"""
import torch
from torch import nn

net = nn.Sequential(*[layer for _ in range(20) for layer in (nn.Linear(1024, 1024), nn.GELU())]).cuda()
optimizer = torch.optim.Adam(net.parameters())
for step in range(3):
    loss = net(torch.randn(32768, 1024, device="cuda")).square().mean()  # here
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
