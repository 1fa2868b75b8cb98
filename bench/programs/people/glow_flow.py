"""A Glow of images: actnorm, invertible 1x1 convolutions, affine couplings, likelihood in bits, temperature samples now and then."""
import math

import torch
import torch.nn.functional as F
from torch import nn


class ActNorm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.shift, self.scale = nn.Parameter(torch.zeros(1, c, 1, 1)), nn.Parameter(torch.zeros(1, c, 1, 1))

    def forward(self, x):
        return (x + self.shift) * self.scale.exp(), self.scale.sum() * x.shape[2] * x.shape[3]

    def inverse(self, y):
        return y * (-self.scale).exp() - self.shift


class Mixing(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.linalg.qr(torch.randn(c, c))[0])

    def forward(self, x):
        return F.conv2d(x, self.weight[:, :, None, None]), torch.linalg.slogdet(self.weight)[1] * x.shape[2] * x.shape[3]

    def inverse(self, y):
        return F.conv2d(y, torch.linalg.inv(self.weight)[:, :, None, None])


class Coupling(nn.Module):
    def __init__(self, c, hidden=384):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(c // 2, hidden, 3, 1, 1), nn.ReLU(), nn.Conv2d(hidden, hidden, 1), nn.ReLU(), nn.Conv2d(hidden, c, 3, 1, 1))
        nn.init.zeros_(self.net[-1].weight)

    def parts(self, a):
        shift, scale = self.net(a).chunk(2, 1)
        return shift, torch.sigmoid(scale + 2)

    def forward(self, x):
        a, b = x.chunk(2, 1)
        shift, scale = self.parts(a)
        return torch.cat([a, (b + shift) * scale], 1), scale.log().flatten(1).sum(1)

    def inverse(self, y):
        a, b = y.chunk(2, 1)
        shift, scale = self.parts(a)
        return torch.cat([a, b / scale - shift], 1)


class Glow(nn.Module):
    def __init__(self, levels=3, depth=10, c=3):
        super().__init__()
        self.levels = nn.ModuleList()
        for level in range(levels):
            c *= 4
            self.levels.append(nn.ModuleList([m for _ in range(depth) for m in (ActNorm(c), Mixing(c), Coupling(c))]))
            c //= 2 if level < levels - 1 else 1
        self.last = c

    def forward(self, x):
        density = x.new_zeros(len(x))
        for n, level in enumerate(self.levels):
            x = F.pixel_unshuffle(x, 2)
            for flow in level:
                x, more = flow(x)
                density = density + more
            if n < len(self.levels) - 1:
                x, out = x.chunk(2, 1)
                density = density - 0.5 * (out**2 + math.log(2 * math.pi)).flatten(1).sum(1)
        return density - 0.5 * (x**2 + math.log(2 * math.pi)).flatten(1).sum(1)

    def sample(self, n, size, heat=0.7):
        s = size >> len(self.levels)
        x = torch.randn(n, self.last, s, s, device="cuda") * heat
        for k, level in reversed(list(enumerate(self.levels))):
            if k < len(self.levels) - 1:
                x = torch.cat([x, torch.randn_like(x) * heat], 1)
            for flow in reversed(level):
                x = flow.inverse(x)
            x = F.pixel_shuffle(x, 2)
        return x


torch.manual_seed(0)
model = Glow().cuda()
optimizer = torch.optim.Adamax(model.parameters(), lr=1e-3)
for step in range(60):
    images = (torch.randint(0, 256, (48, 3, 64, 64)).float() / 256 - 0.5).cuda()
    images += torch.rand_like(images) / 256
    loss = -(model(images).mean() / (3 * 64 * 64 * math.log(2)) - 8)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 24:
        with torch.no_grad():
            print(step, loss.item(), model.sample(16, 64).abs().mean().item())
