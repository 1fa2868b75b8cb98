"""A frozen network that removes noise, and a trainable copy of its half that is told what to draw: zero convolutions, mixed precision."""
import copy

import torch
import torch.nn.functional as F
from torch import nn

W = (128, 256, 384, 512)


class Res(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.n1, self.c1, self.n2, self.c2 = nn.GroupNorm(32, a), nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(32, b), nn.Conv2d(b, b, 3, padding=1)
        self.time, self.skip = nn.Linear(512, b), nn.Conv2d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x, t):
        y = self.c1(F.silu(self.n1(x))) + self.time(t)[:, :, None, None]
        return self.skip(x) + self.c2(F.silu(self.n2(y)))


class Down(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(4, W[0], 3, padding=1)
        self.res = nn.ModuleList(Res(W[max(n - 1, 0)], w) for n, w in enumerate(W))
        self.more = nn.ModuleList(Res(w, w) for w in W)

    def forward(self, x, t, hint=0):
        x, kept = self.first(x) + hint, []
        for one, two in zip(self.res, self.more):
            x = two(one(x, t), t)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        return x, kept


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(128, 512), nn.SiLU(), nn.Linear(512, 512))
        self.down, self.middle = Down(), Res(W[-1], W[-1])
        self.up = nn.ModuleList(Res(W[min(n + 1, 3)] + w, w) for n, w in reversed(list(enumerate(W))))
        self.out = nn.Conv2d(W[0], 4, 3, padding=1)

    def embedded(self, t):
        at = t[:, None] * torch.exp(-torch.arange(64, device=t.device) / 7)
        return self.time(torch.cat([at.sin(), at.cos()], 1))

    def forward(self, x, t, more):
        t = self.embedded(t)
        x, kept = self.down(x, t)
        x = self.middle(x, t)
        for block, skip, added in zip(self.up, reversed(kept), reversed(more)):
            x = block(torch.cat([F.interpolate(x, scale_factor=2), skip + added], 1), t)
        return self.out(x)


class Control(nn.Module):
    def __init__(self, unet):
        super().__init__()
        self.down, self.time = copy.deepcopy(unet.down), copy.deepcopy(unet.time)
        self.hint = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.SiLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.SiLU(), nn.Conv2d(64, W[0], 3, 2, 1))
        self.zeros = nn.ModuleList(nn.Conv2d(w, w, 1) for w in W)

    def forward(self, x, t, picture):
        _, kept = self.down(x, t, self.hint(picture))
        return [zero(it) for zero, it in zip(self.zeros, kept)]


torch.manual_seed(0)
unet = UNet().cuda().requires_grad_(False)
control = Control(unet).cuda().requires_grad_(True)
optimizer = torch.optim.AdamW(control.parameters(), lr=1e-5)
scaler = torch.amp.GradScaler("cuda")
for step in range(30):
    latents, noise = torch.randn(16, 4, 64, 64, device="cuda"), torch.randn(16, 4, 64, 64, device="cuda")
    t, edges = torch.randint(0, 1000, (16,), device="cuda").float(), torch.rand(16, 3, 256, 256, device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        noisy = latents + noise * (t / 1000)[:, None, None, None]
        loss = F.mse_loss(unet(noisy, t, control(noisy, unet.embedded(t), edges)).float(), noise)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if step % 10 == 0:
        print(step, loss.item())
