"""A denoising U-Net inside of nn.DataParallel, with a noise schedule; the loss is computed inside of forward."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Res(nn.Module):
    def __init__(self, i, o, emb):
        super().__init__()
        self.a = nn.Sequential(nn.GroupNorm(8, i), nn.SiLU(), nn.Conv2d(i, o, 3, padding=1))
        self.t = nn.Linear(emb, o)
        self.b = nn.Sequential(nn.GroupNorm(8, o), nn.SiLU(), nn.Conv2d(o, o, 3, padding=1))
        self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, t):
        return self.b(self.a(x) + self.t(t)[:, :, None, None]) + self.skip(x)


class UNet(nn.Module):
    def __init__(self, ch=128, emb=256):
        super().__init__()
        self.emb = nn.Sequential(nn.Linear(1, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.inp = nn.Conv2d(3, ch, 3, padding=1)
        self.d1, self.d2, self.d3 = Res(ch, ch, emb), Res(ch, 2 * ch, emb), Res(2 * ch, 4 * ch, emb)
        self.mid = Res(4 * ch, 4 * ch, emb)
        self.u3, self.u2, self.u1 = Res(8 * ch, 2 * ch, emb), Res(4 * ch, ch, emb), Res(2 * ch, ch, emb)
        self.out = nn.Conv2d(ch, 3, 3, padding=1)

    def forward(self, x, t):
        t = self.emb(t[:, None].float())
        a = self.d1(self.inp(x), t)
        b = self.d2(F.avg_pool2d(a, 2), t)
        c = self.d3(F.avg_pool2d(b, 2), t)
        m = self.mid(c, t)
        y = self.u3(torch.cat([m, c], 1), t)
        y = self.u2(torch.cat([F.interpolate(y, scale_factor=2), b], 1), t)
        y = self.u1(torch.cat([F.interpolate(y, scale_factor=2), a], 1), t)
        return self.out(y)


class Diffusion(nn.Module):
    def __init__(self, net, T=1000):
        super().__init__()
        self.net, self.T = net, T
        self.register_buffer("alpha_bar", torch.cumprod(1 - torch.linspace(1e-4, 0.02, T), 0))

    def forward(self, x0, t, noise):
        ab = self.alpha_bar[t][:, None, None, None]
        return F.mse_loss(self.net(ab.sqrt() * x0 + (1 - ab).sqrt() * noise, t / self.T), noise)


def main(bs=72, image=64, steps=24):
    torch.manual_seed(0)
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.DataParallel(Diffusion(UNet()).to(dev))
    ema = None
    opt = torch.optim.Adam(model.parameters(), lr=2e-4)
    for step in range(steps):
        x0 = torch.randn(bs, 3, image, image, device=dev)
        t = torch.randint(0, 1000, (bs,), device=dev)
        loss = model(x0, t, torch.randn_like(x0)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        value = loss.item()
        ema = value if ema is None else 0.9 * ema + 0.1 * value
    print(ema)


if __name__ == "__main__":
    main()
