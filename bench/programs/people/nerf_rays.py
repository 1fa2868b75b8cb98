"""A radiance field: rays in chunks through a coarse and a fine network, positional encodings, Adam with exponential decay."""

import torch
from torch import nn


def encode(x, n):
    parts = [x] + [f(x * 2.0**i) for i in range(n) for f in (torch.sin, torch.cos)]
    return torch.cat(parts, -1)


class Field(nn.Module):
    def __init__(self, width=256, depth=8):
        super().__init__()
        dims = [63] + [width] * depth
        self.layers = nn.ModuleList(nn.Linear(a + (63 if i == 4 else 0), b) for i, (a, b) in enumerate(zip(dims, dims[1:])))
        self.density, self.feature = nn.Linear(width, 1), nn.Linear(width, width)
        self.colour = nn.Sequential(nn.Linear(width + 27, 128), nn.ReLU(), nn.Linear(128, 3), nn.Sigmoid())

    def forward(self, points, directions):
        x = e = encode(points, 10)
        for i, layer in enumerate(self.layers):
            x = torch.relu(layer(torch.cat([x, e], -1) if i == 4 else x))
        return self.density(x), self.colour(torch.cat([self.feature(x), encode(directions, 4)], -1))


def render(field, origins, directions, depths):
    points = origins[:, None] + directions[:, None] * depths[..., None]
    sigma, rgb = field(points, directions[:, None].expand_as(points))
    delta = torch.diff(depths, dim=-1, append=depths[:, -1:] + 0.1)
    alpha = 1 - torch.exp(-torch.relu(sigma[..., 0]) * delta)
    weights = alpha * torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
    return (weights[..., None] * rgb).sum(1), weights


def main():
    device = "cuda"
    coarse, fine = Field().to(device), Field().to(device)
    opt = torch.optim.Adam([*coarse.parameters(), *fine.parameters()], lr=5e-4)
    schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9999)
    for step in range(12):
        o, d = torch.randn(4096, 3, device=device), nn.functional.normalize(torch.randn(4096, 3, device=device), dim=-1)
        target = torch.rand(4096, 3, device=device)
        depths = torch.linspace(2, 6, 64, device=device).expand(4096, 64) + torch.rand(4096, 64, device=device) * 0.06
        rgb, weights = render(coarse, o, d, depths)
        more = torch.searchsorted(torch.cumsum(weights.detach(), -1).contiguous(), torch.rand(4096, 128, device=device)).clamp(max=63)
        depths = torch.sort(torch.cat([depths, depths.gather(-1, more)], -1), -1).values
        rgb_fine, _ = render(fine, o, d, depths)
        loss = (rgb - target).square().mean() + (rgb_fine - target).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        schedule.step()
        print(step, loss.item())


main()
