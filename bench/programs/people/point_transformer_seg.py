"""Point clouds: k nearest neighbours by cdist, vector attention on neighbourhoods, a segmentation head, cosine schedule."""

import torch
from torch import nn


def neighbours(xyz, k):
    return torch.cdist(xyz, xyz).topk(k, largest=False).indices


def gather(x, idx):
    return x[torch.arange(x.shape[0], device=x.device)[:, None, None], idx]


class Layer(nn.Module):
    def __init__(self, d, k=16):
        super().__init__()
        self.k, self.q, self.kv = k, nn.Linear(d, d), nn.Linear(d, 2 * d)
        self.pos = nn.Sequential(nn.Linear(3, d), nn.ReLU(), nn.Linear(d, d))
        self.weigh = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d))
        self.norm, self.out = nn.LayerNorm(d), nn.Linear(d, d)

    def forward(self, x, xyz, idx):
        key, value = gather(self.kv(x), idx).chunk(2, -1)
        pos = self.pos(xyz[:, :, None] - gather(xyz, idx))
        weights = self.weigh(self.q(x)[:, :, None] - key + pos).softmax(2)
        return self.norm(x + self.out((weights * (value + pos)).sum(2)))


class Net(nn.Module):
    def __init__(self, d=128, depth=4, classes=50):
        super().__init__()
        self.inp, self.layers, self.head = nn.Linear(6, d), nn.ModuleList(Layer(d) for _ in range(depth)), nn.Linear(d, classes)

    def forward(self, points):
        xyz = points[..., :3]
        idx = neighbours(xyz, 16)
        x = self.inp(points)
        for layer in self.layers:
            x = layer(x, xyz, idx)
        return self.head(x)


net = Net().cuda()
opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, nesterov=True)
plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
for epoch in range(10):
    points, labels = torch.randn(8, 2048, 6, device="cuda"), torch.randint(50, (8, 2048), device="cuda")
    loss = nn.functional.cross_entropy(net(points).flatten(0, 1), labels.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    plan.step()
print(loss.item())
