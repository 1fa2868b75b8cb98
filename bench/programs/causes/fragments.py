"""cause: fragmentation/slack
memory: 3GiB
why: of each segment of 20 MiB one block of 8 MiB is kept. 12 MiB are free in each of 100, and no layer's result of 64 MiB fits into them.
"""
import torch
from torch import nn

net = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(6))).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
pieces = [torch.empty(8 << 20, dtype=torch.uint8, device="cuda") for _ in range(200)]
# Every second one is needed for the whole run.
del pieces[::2]
for step in range(5):
    optimizer.zero_grad()
    net(torch.randn(16384, 1024, device="cuda")).pow(2).mean().backward()
    optimizer.step()
