"""clDice: a soft skeleton by 40 iterations of pooling, all kept for the backward pass (jocpae/clDice#13)."""
import torch
from torch import nn
from torch.nn import functional as F

net = nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 8, 3, 1, 1)).cuda()
opt = torch.optim.Adam(net.parameters(), 1e-4)


def erode(x):
    return torch.min(-F.max_pool2d(-x, (3, 1), 1, (1, 0)), -F.max_pool2d(-x, (1, 3), 1, (0, 1)))


def skeleton(x, iterations=4):
    found = F.relu(x - F.max_pool2d(erode(x), 3, 1, 1))
    for _ in range(iterations):
        x = erode(x)
        delta = F.relu(x - F.max_pool2d(erode(x), 3, 1, 1))
        found = found + F.relu(delta - found * delta)
    return found


for step in range(100):
    out = net(torch.randn(1, 3, 1024, 2048).cuda()).softmax(1)
    truth = torch.rand(1, 8, 1024, 2048).cuda()
    loss = 1 - (lambda s: (s * truth).sum() / s.sum())(skeleton(out))
    opt.zero_grad()
    loss.backward()
    opt.step()
