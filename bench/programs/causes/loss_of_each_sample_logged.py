"""cause: leak/results-kept at line 20
also right: growth/per-step
also right: line 15
memory: 2GiB
why: the loss of each pixel is logged in each step, on the device.
"""
import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 12, 1)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
logged = {"loss": [], "map": []}
for step in range(400):
    images, labels = torch.randn(64, 3, 128, 128).cuda(), torch.randint(0, 12, (64, 128, 128)).cuda()
    loss = nn.functional.cross_entropy(net(images), labels, reduction="none")
    optimizer.zero_grad()
    loss.mean().backward()
    optimizer.step()
    logged["loss"].append(loss.mean().item())
    logged["map"].append(loss.detach().clone())  # here
