"""cause: copies/double-buffer at line 21
also right: growth/per-step
also right: leak/earlier-models
memory: 2GiB
why: after each epoch a copy of all weights goes into a list, for an average in the end.
"""
import copy

import torch
from torch import nn

model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
snapshots = []
for epoch in range(40):
    for step in range(5):
        loss = model(torch.randn(64, 1024, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    snapshots.append(copy.deepcopy(model.state_dict()))  # here
