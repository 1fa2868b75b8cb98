"""cause: size/one-allocation at line 12
memory: 3GiB 6GiB
"""
import torch
from torch import nn

net = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 128)).cuda()
optimizer = torch.optim.Adam(net.parameters())
for step in range(3):
    points = net(torch.randn(40000, 128, device="cuda"))
    # Every point against every other.
    distances = torch.cdist(points, points)  # here
    loss = distances.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
