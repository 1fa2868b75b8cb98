"""A small diffusion network, compiled in the mode that records CUDA graphs, EMA of the weights, channels last, bf16."""

import copy

import torch
from torch import nn
from torch.nn import functional as F


class Res(nn.Module):
    def __init__(self, a, b, t=512):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(16, a), nn.Conv2d(a, b, 3, padding=1)
        self.n2, self.c2 = nn.GroupNorm(16, b), nn.Conv2d(b, b, 3, padding=1)
        self.t, self.skip = nn.Linear(t, b), nn.Conv2d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x, t):
        h = self.c1(F.silu(self.n1(x))) + self.t(t)[:, :, None, None]
        return self.skip(x) + self.c2(F.silu(self.n2(h)))


class Net(nn.Module):
    def __init__(self, w=128):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(256, 512), nn.SiLU(), nn.Linear(512, 512))
        self.inp, self.out = nn.Conv2d(4, w, 3, padding=1), nn.Conv2d(w, 4, 3, padding=1)
        self.down = nn.ModuleList([Res(w, w), Res(w, 2 * w), Res(2 * w, 4 * w)])
        self.middle = Res(4 * w, 4 * w)
        self.up = nn.ModuleList([Res(8 * w, 2 * w), Res(4 * w, w), Res(2 * w, w)])

    def forward(self, x, t):
        f = torch.exp(-torch.arange(128, device=x.device) / 14) * t[:, None]
        t = self.time(torch.cat([f.sin(), f.cos()], 1))
        x, kept = self.inp(x), []
        for it in self.down:
            x = it(x, t)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x, t)
        for it in self.up:
            x = it(torch.cat([F.interpolate(x, scale_factor=2.0), kept.pop()], 1), t)
        return self.out(x)


torch.manual_seed(0)
net = Net().cuda().to(memory_format=torch.channels_last)
ema = copy.deepcopy(net).requires_grad_(False)
step_fn = torch.compile(net, mode="reduce-overhead")
optimizer = torch.optim.AdamW(net.parameters(), lr=2e-4, fused=True)
for step in range(40):
    x = torch.randn(48, 4, 64, 64, device="cuda").to(memory_format=torch.channels_last)
    noise, t = torch.randn_like(x), torch.rand(48, device="cuda") * 1000
    a = torch.cos(t / 1000 * 1.57)[:, None, None, None]
    with torch.autocast("cuda", torch.bfloat16):
        loss = F.mse_loss(step_fn(a * x + (1 - a**2).sqrt() * noise, t), noise)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    with torch.no_grad():
        for p, q in zip(ema.parameters(), net.parameters()):
            p.lerp_(q, 0.001)
print(loss.item())
