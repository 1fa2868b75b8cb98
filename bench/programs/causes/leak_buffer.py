"""cause: growth/per-step at line 11
memory: 2GiB 4GiB
"""
import torch
from torch import nn
net = nn.Linear(4096, 4096).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
replay = []
for step in range(1000):
    # Experiences that nobody forgets.
    replay.append(torch.randn(1024, 4096, device="cuda"))  # here
    x = replay[step // 2]
    loss = (net(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
