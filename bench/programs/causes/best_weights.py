"""cause: copies/double-buffer at line 18
memory: 3GiB
"""
from copy import deepcopy

import torch
from torch import nn

net = nn.Sequential(*[nn.Linear(6144, 6144) for _ in range(4)]).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
best = None
for epoch in range(3):
    for step in range(3):
        loss = net(torch.randn(16, 6144, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    best, before = deepcopy(net), best  # here
    last = deepcopy(best)
