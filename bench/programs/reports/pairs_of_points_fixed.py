"""The same by a matrix product."""
import torch
from torch import nn

POINTS, OTHERS, WIDTH = 32_768, 8_192, 32
net = nn.Sequential(nn.Linear(3, 256), nn.ReLU(), nn.Linear(256, WIDTH)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def distances(a, b):
    return a.square().sum(1, keepdim=True) + b.square().sum(1) - 2 * a @ b.T


for step in range(1000):
    a, b = net(torch.randn(POINTS, 3).cuda()), net(torch.randn(OTHERS, 3).cuda())
    loss = distances(a, b).min(1).values.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
