"""cause: copies/double-buffer at line 17
memory: 4GiB
"""
import copy

import torch
from torch import nn

net = nn.Sequential(*[nn.Linear(8192, 8192) for _ in range(4)]).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(4):
    loss = net(torch.randn(8, 8192, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # All weights once more.
    best = copy.deepcopy(net.state_dict())  # here
    worst = copy.deepcopy(net.state_dict())
