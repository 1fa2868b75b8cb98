"""cause: inputs/dynamic-shapes at line 12
memory: 2GiB 3GiB
"""
import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
                    nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
sizes = [128, 160, 128, 192, 160, 128, 640, 128]
for size in sizes:
    images = torch.randn(16, 3, size, size, device="cuda")  # here
    loss = nn.functional.cross_entropy(net(images), torch.randint(10, (16,), device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
