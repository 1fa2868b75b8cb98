"""cause: leak/eval-without-no-grad at line 23
memory: 2GiB 3GiB
"""
import torch
from torch import nn


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())


net = nn.Sequential(block(3, 64), *[block(64, 64) for _ in range(10)], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def validate():
    net.eval()
    right = 0
    for step in range(10):
        images = torch.randn(128, 3, 96, 96, device="cuda")
        labels = torch.randint(10, (128,), device="cuda")
        # Nobody said no_grad.
        right += (net(images).argmax(1) == labels).sum().item()  # here
    return right


for epoch in range(2):
    net.train()
    for step in range(6):
        images = torch.randn(16, 3, 96, 96, device="cuda")
        loss = nn.functional.cross_entropy(net(images), torch.randint(10, (16,), device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    validate()
