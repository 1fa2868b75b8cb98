"""cause: leak/results-kept at line 13
also right: growth/per-step
also right: size/model-states
also right: size/too-large
also right: inputs/all-on-device
also right: size/one-allocation
memory: 2GiB
why: the whole data set is moved to the device before training begins.
"""
import torch
from torch import nn

data = [torch.randn(64, 3, 64, 64).cuda() for _ in range(1000)]  # here
net = nn.Conv2d(3, 8, 3).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for images in data:
    optimizer.zero_grad()
    net(images).mean().backward()
    optimizer.step()
