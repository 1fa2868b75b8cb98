"""cause: size/model-states at line 8
memory: 2GiB 3GiB
"""
import torch
from torch import nn

# Sixteen blocks of 256 MiB.
net = nn.Sequential(*[nn.Linear(8192, 8192) for _ in range(16)]).cuda()  # here
optimizer = torch.optim.Adam(net.parameters())
for step in range(3):
    loss = net(torch.randn(8, 8192, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
