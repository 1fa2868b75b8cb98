"""Depthwise and pointwise convolutions with activations in place (001)."""

import torch
from torch import nn


def separable(a, b, stride=1):
    depthwise = nn.Conv2d(a, a, kernel_size=3, padding=1, stride=stride, groups=a)
    pointwise = nn.Conv2d(a, b, kernel_size=1)
    return nn.Sequential(depthwise, pointwise, nn.BatchNorm2d(b), nn.ReLU(inplace=True))


widths = [64, 128, 128, 256, 256, 256, 512, 512, 512]
layers = [separable(a, b, 2 if a < b else 1) for a, b in zip(widths, widths[1:])]
head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), *layers, *head).cuda()
optimizer, criterion = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), nn.CrossEntropyLoss()
for _ in range(10):
    data = torch.randn(192, 3, 224, 224, device="cuda")
    data += 1
    optimizer.zero_grad()
    loss = criterion(model(data), torch.randint(10, (192,), device="cuda"))
    loss.backward()
    optimizer.step()
