"""cause: size/activations at line 14
memory: 2GiB 3GiB
"""
import torch
from torch import nn

layers = [nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()) for _ in range(12)]
net = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    images = torch.randn(64, 3, 112, 112, device="cuda")
    labels = torch.randint(10, (64,), device="cuda")
    # The first forward pass is too much.
    loss = nn.functional.cross_entropy(net(images), labels)  # here
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
