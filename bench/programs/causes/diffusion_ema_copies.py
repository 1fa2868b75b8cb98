"""cause: growth/per-step at line 22
also right: leak/results-kept
also right: line 21
memory: 2GiB
why: every averaged model is kept, for a plot at the end.
"""
import copy

import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 256, 3, padding=1), nn.SiLU(), nn.Conv2d(256, 512, 3, padding=1), nn.SiLU(), nn.Conv2d(512, 3, 3, padding=1)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
averages = []
for step in range(600):
    x = torch.randn(2, 3, 32, 32, device="cuda")
    loss = (net(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average = copy.deepcopy(net)
    averages.append(average.state_dict())  # here
