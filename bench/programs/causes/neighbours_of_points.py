"""cause: size/one-allocation at line 14
also right: line 16
memory: 3GiB
why: the neighbours of 4,096 points in each of 16 clouds are found by all distances, in the manner of DGCNN.
"""
import torch
from torch import nn
from torch.nn import functional as F


def knn(x, k):
    """x is clouds x channels x points."""
    with torch.no_grad():
        inner = -2 * torch.matmul(x.transpose(2, 1), x)  # here
        squares = (x**2).sum(1, keepdim=True)
        distances = -squares - inner - squares.transpose(2, 1)
        return distances.topk(k, dim=-1).indices


def edges(x, k):
    clouds, channels, points = x.shape
    near = knn(x, k) + torch.arange(clouds, device=x.device).view(-1, 1, 1) * points
    flat = x.transpose(2, 1).reshape(clouds * points, channels)
    around = flat[near.view(-1)].view(clouds, points, k, channels)
    own = flat.view(clouds, points, 1, channels).expand_as(around)
    return torch.cat([around - own, own], 3).permute(0, 3, 1, 2)


class DGCNN(nn.Module):
    def __init__(self, k=6, classes=12):
        super().__init__()
        self.k = k
        self.first = nn.Sequential(nn.Conv2d(6, 16, 1, bias=False), nn.BatchNorm2d(16), nn.LeakyReLU(0.2))
        self.second = nn.Sequential(nn.Conv2d(32, 32, 1, bias=False), nn.BatchNorm2d(32), nn.LeakyReLU(0.2))
        self.head = nn.Linear(48, classes)

    def forward(self, points):
        a = self.first(edges(points, self.k)).max(-1).values
        b = self.second(edges(a, self.k)).max(-1).values
        return self.head(torch.cat([a, b], 1).max(-1).values)


net = DGCNN().cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for step in range(4):
    points = torch.rand(16, 3, 4096, device="cuda")
    loss = F.cross_entropy(net(points), torch.randint(0, 12, (16,), device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
