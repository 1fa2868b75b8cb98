"""1000 steps of sampling take 2 GB; 20 steps of the faster solver take all 24 (MedSegDiff#157)."""
import torch
from torch import nn


class Noise(nn.Module):
    def __init__(self, width=64, depth=14):
        super().__init__()
        self.first = nn.Conv2d(4, width, 3, 1, 1)
        self.blocks = nn.ModuleList([nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, 1, 1)) for _ in range(depth)])
        self.last = nn.Conv2d(width, 4, 3, 1, 1)

    def forward(self, x, t):
        x = self.first(x) + t
        for block in self.blocks:
            x = x + block(x)
        return self.last(x)


@torch.no_grad()
def slow_sample(model, shape, steps=1000):
    x = torch.randn(shape, device="cuda")
    for t in torch.linspace(1, 0, steps).tolist():
        x = x - model(x, t) / steps
    return x


def solver_sample(model, shape, steps=20):
    x = torch.randn(shape, device="cuda")
    times = torch.linspace(1, 0, steps + 1).tolist()
    before = None
    for now, after in zip(times, times[1:]):
        noise = model(x, now)
        direction = noise if before is None else 1.5 * noise - 0.5 * before
        x = x + (after - now) * direction
        before = noise
    return x


model = Noise().cuda().eval()
fast = True
for picture in range(100):
    shape = (1, 4, 256, 256)
    made = solver_sample(model, shape) if fast else slow_sample(model, shape)
    print(picture, made.mean().item())
