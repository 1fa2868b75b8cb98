"""A signed distance field of a scan: trained on points, then asked for a mesh."""
import argparse

import torch
from torch import nn


class Field(nn.Module):
    def __init__(self, width=256, layers=6, frequencies=6):
        super().__init__()
        self.frequencies = frequencies
        inside = 3 * (1 + 2 * frequencies)
        self.layers = nn.ModuleList(nn.Linear(inside if i == 0 else width, width) for i in range(layers))
        self.last = nn.Linear(width, 1)

    def encode(self, x):
        parts = [x]
        for i in range(self.frequencies):
            parts += [torch.sin(2**i * x), torch.cos(2**i * x)]
        return torch.cat(parts, -1)

    def forward(self, x):
        x = self.encode(x)
        for layer in self.layers:
            x = nn.functional.softplus(layer(x), beta=100)
        return self.last(x)


def eikonal(field, points):
    points.requires_grad_(True)
    gradient = torch.autograd.grad(field(points).sum(), points, create_graph=True)[0]
    return ((gradient.norm(dim=-1) - 1) ** 2).mean()


@torch.no_grad()
def distances(field, resolution, device):
    axis = torch.linspace(-1, 1, resolution, device=device)
    grid = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)
    parts = [field(part).cpu() for part in grid.split(2**18)]
    return torch.cat(parts).view(resolution, resolution, resolution)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--points", type=int, default=16384)
    parser.add_argument("--resolution", type=int, default=320)
    args = parser.parse_args()
    device = torch.device("cuda")
    scan = torch.rand(200_000, 3) * 2 - 1
    field = Field().to(device)
    optimizer = torch.optim.Adam(field.parameters(), lr=5e-4)
    for step in range(args.steps):
        surface = scan[torch.randint(0, len(scan), (args.points,))].to(device)
        space = torch.rand(args.points, 3, device=device) * 2 - 1
        loss = field(surface).abs().mean() + 0.1 * eikonal(field, space)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 500 == 0:
            print(step, loss.item(), flush=True)
    volume = distances(field, args.resolution, device)
    print("inside:", (volume < 0).float().mean().item())


if __name__ == "__main__":
    main()
