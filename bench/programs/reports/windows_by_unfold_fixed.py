"""Self-attention in windows of 7x7: unfold copies each pixel of keys and values 49 times, in each of four layers; four pictures at a time."""
import torch
import torch.nn.functional as F
from torch import nn


class WindowAttention(nn.Module):
    def __init__(self, n, k=7):
        super().__init__()
        self.q, self.k, self.v, self.size = nn.Conv2d(n, n, 1), nn.Conv2d(n, n, 1), nn.Conv2d(n, n, 1), k

    def forward(self, x):
        b, n, h, w = x.shape
        q = self.q(x).view(b, n, 1, h * w)
        k = F.unfold(self.k(x), self.size, padding=self.size // 2).view(b, n, -1, h * w)
        v = F.unfold(self.v(x), self.size, padding=self.size // 2).view(b, n, -1, h * w)
        weights = (q * k).sum(1, keepdim=True).softmax(2)
        return (weights * v).sum(2).view(b, n, h, w)


model = nn.Sequential(nn.Conv2d(3, 64, 4, 4), *[WindowAttention(64) for _ in range(4)], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 100)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(500):
    pictures, classes = torch.rand(4, 3, 224, 224).cuda(), torch.randint(100, (4,)).cuda()
    loss = F.cross_entropy(model(pictures), classes)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
