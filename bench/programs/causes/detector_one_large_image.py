"""cause: inputs/dynamic-shapes at line 19
also right: line 18
memory: 2GiB
why: one picture of the tenth batch is four times as wide and high.
"""
import torch
from torch import nn


def block(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())


net = nn.Sequential(block(3, 32), block(32, 32), nn.MaxPool2d(2), block(32, 64), block(64, 64), nn.Conv2d(64, 6, 1)).cuda()
sizes = [256] * 9 + [1024] + [256] * 10
optimizer = torch.optim.Adam(net.parameters())
for step, size in enumerate(sizes):
    images = torch.randn(4, 3, size, size).cuda()
    loss = net(images).square().mean()  # here
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
