"""A score network (NCSN++-like) with Fourier features of time, an EMA, warm-up, and samples every 15 steps by a predictor-corrector."""
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Time(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.register_buffer("w", torch.randn(d // 2) * 16)
        self.net = nn.Sequential(nn.Linear(d, 4 * d), nn.SiLU(), nn.Linear(4 * d, 4 * d))

    def forward(self, t):
        a = t[:, None] * self.w * 2 * math.pi
        return self.net(torch.cat([a.sin(), a.cos()], 1))


class Res(nn.Module):
    def __init__(self, i, o, e):
        super().__init__()
        self.n1, self.c1, self.e = nn.GroupNorm(32, i), nn.Conv2d(i, o, 3, padding=1), nn.Linear(e, o)
        self.n2, self.c2 = nn.GroupNorm(32, o), nn.Conv2d(o, o, 3, padding=1)
        self.s = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, e):
        h = self.c1(F.silu(self.n1(x))) + self.e(e)[:, :, None, None]
        return (self.c2(F.dropout(F.silu(self.n2(h)), 0.1, self.training)) + self.s(x)) / 2**0.5


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n, self.qkv, self.o = nn.GroupNorm(32, c), nn.Conv2d(c, 3 * c, 1), nn.Conv2d(c, c, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.n(x)).view(b, 3, c, h * w).unbind(1)
        weights = torch.einsum("bci,bcj->bij", q, k).mul(c**-0.5).softmax(-1)
        return x + self.o(torch.einsum("bij,bcj->bci", weights, v).view(b, c, h, w))


class Score(nn.Module):
    def __init__(self, c=128):
        super().__init__()
        e = 4 * c
        self.time, self.inp = Time(c), nn.Conv2d(3, c, 3, padding=1)
        self.d = nn.ModuleList([Res(c, c, e), Res(c, 2 * c, e), Res(2 * c, 2 * c, e)])
        self.mid, self.att = Res(2 * c, 2 * c, e), Attention(2 * c)
        self.u = nn.ModuleList([Res(4 * c, 2 * c, e), Res(4 * c, c, e), Res(2 * c, c, e)])
        self.out = nn.Sequential(nn.GroupNorm(32, c), nn.SiLU(), nn.Conv2d(c, 3, 3, padding=1))

    def forward(self, x, t):
        e, h, kept = self.time(t), self.inp(x), []
        for r in self.d:
            h = r(h, e)
            kept.append(h)
            h = F.avg_pool2d(h, 2)
        h = self.att(self.mid(h, e))
        for r in self.u:
            h = r(torch.cat([F.interpolate(h, scale_factor=2), kept.pop()], 1), e)
        return self.out(h)


@torch.no_grad()
def sample(model, n):
    x = torch.randn(n, 3, 64, 64, device="cuda") * 50
    for t in torch.linspace(1, 1e-3, 10, device="cuda"):
        for _ in range(2):
            x = x + 0.01 * model(x, t.expand(n)) + 0.1 * torch.randn_like(x)
    return x.clamp(-1, 1).cpu()


net = Score().cuda()
ema = copy.deepcopy(net).requires_grad_(False)
opt = torch.optim.Adam(net.parameters(), 2e-4)
for step in range(45):
    x = torch.rand(64, 3, 64, 64).cuda() * 2 - 1
    t = torch.rand(64, device="cuda") * 0.999 + 1e-3
    sigma = (0.01 * 5000**t)[:, None, None, None]
    z = torch.randn_like(x)
    loss = ((net(x + sigma * z, t) * sigma + z) ** 2).sum((1, 2, 3)).mean()
    opt.zero_grad()
    loss.backward()
    for g in opt.param_groups:
        g["lr"] = 2e-4 * min(step / 20, 1)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    for a, b in zip(ema.parameters(), net.parameters()):
        a.mul_(0.999).add_(b, alpha=0.001)
    if step % 15 == 14:
        sample(ema, 64)
