"""Denoising diffusion: a small U-Net of one's own, gradients of four batches, an average of weights by hand, samples in between."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ch, batch, size, T, accumulate, steps = 128, 128, 64, 1000, 4, 24


class Res(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, i), nn.GroupNorm(8, o)
        self.conv1, self.conv2 = nn.Conv2d(i, o, 3, padding=1), nn.Conv2d(o, o, 3, padding=1)
        self.time, self.skip = nn.Linear(4 * ch, o), nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(t)[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(ch, 4 * ch), nn.SiLU(), nn.Linear(4 * ch, 4 * ch))
        self.inp = nn.Conv2d(3, ch, 3, padding=1)
        self.down = nn.ModuleList([Res(ch, ch), Res(ch, 2 * ch), Res(2 * ch, 2 * ch)])
        self.mid = Res(2 * ch, 2 * ch)
        self.up = nn.ModuleList([Res(4 * ch, 2 * ch), Res(4 * ch, ch), Res(2 * ch, ch)])
        self.out = nn.Sequential(nn.GroupNorm(8, ch), nn.SiLU(), nn.Conv2d(ch, 3, 3, padding=1))

    def forward(self, x, t):
        freqs = torch.exp(-math.log(10000) * torch.arange(ch // 2, device=x.device) / (ch // 2))
        angles = t[:, None] * freqs
        t = self.time(torch.cat([angles.sin(), angles.cos()], 1).to(x.dtype))
        x, kept = self.inp(x), []
        for block in self.down:
            x = block(x, t)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.mid(x, t)
        for block in self.up:
            x = F.interpolate(x, scale_factor=2)
            x = block(torch.cat([x, kept.pop()], 1), t)
        return self.out(x)


def main():
    model = UNet().to(device)
    ema = copy.deepcopy(model).eval().requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, T, device=device), 0)
    for step in range(steps):
        x0 = torch.randn(batch, 3, size, size, device=device)
        t = torch.randint(T, (batch,), device=device)
        noise = torch.randn_like(x0)
        a = alphas[t][:, None, None, None].to(x0.dtype)
        loss = F.mse_loss(model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t), noise) / accumulate
        loss.backward()
        if (step + 1) % accumulate == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                for p, q in zip(ema.parameters(), model.parameters()):
                    p.lerp_(q, 0.005)
        if step % 16 == 15:
            with torch.no_grad():
                x = torch.randn(16, 3, size, size, device=device)
                for i in reversed(range(0, T, 250)):
                    x = x - 0.1 * ema(x, torch.full((16,), i, device=device))


if __name__ == "__main__":
    main()
