"""cause: leak/results-kept at line 11
also right: line 15
memory: 2GiB 5GiB
"""
import torch
from torch import nn
net = nn.Sequential(nn.Linear(256, 4096), nn.ReLU(), nn.Linear(4096, 4096)).cuda()
optimizer = torch.optim.Adam(net.parameters())
outputs = []
for step in range(1000):
    out = net(torch.randn(2048, 256, device="cuda"))  # here
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
    outputs.append(out.detach())
