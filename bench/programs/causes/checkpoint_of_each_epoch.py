"""cause: growth/per-step at line 18
also right: leak/earlier-models
also right: leak/results-kept
also right: line 19
memory: 3GiB
why: the checkpoint of each epoch is a copy of model and optimizer, and all are kept until the end.
"""
import copy

import torch
from torch import nn

history = []


def checkpoint(net, optimizer):
    history.append({
        "model": copy.deepcopy(net.state_dict()),  # here
        "optimizer": copy.deepcopy(optimizer.state_dict()),
    })


net = nn.Sequential(nn.Linear(2048, 4096), nn.ReLU(), nn.Linear(4096, 2048)).cuda()
optimizer = torch.optim.Adam(net.parameters())
for epoch in range(30):
    for step in range(5):
        x = torch.randn(64, 2048, device="cuda")
        loss = (net(x) - x).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    checkpoint(net, optimizer)
