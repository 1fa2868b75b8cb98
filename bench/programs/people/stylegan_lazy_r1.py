"""StyleGAN2-like: a mapping network, modulated convolutions, noise, style mixing, R1 penalty every fourth step, an EMA generator."""
import copy
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import grad

random.seed(7)
torch.manual_seed(7)
RES, Z, BATCH, R1_GAMMA, D_REG_EVERY = 128, 512, 24, 10.0, 4
CH = {4: 512, 8: 512, 16: 512, 32: 512, 64: 256, 128: 128}


class EqualLinear(nn.Module):
    def __init__(self, i, o, bias=0.0, lr_mul=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(o, i) / lr_mul)
        self.bias = nn.Parameter(torch.full((o,), bias))
        self.scale, self.lr_mul = lr_mul / math.sqrt(i), lr_mul

    def forward(self, x):
        return F.linear(x, self.weight * self.scale, self.bias * self.lr_mul)


class EqualConv(nn.Module):
    def __init__(self, i, o, k):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(o, i, k, k))
        self.bias = nn.Parameter(torch.zeros(o))
        self.scale, self.pad = 1 / math.sqrt(i * k * k), k // 2

    def forward(self, x):
        return F.conv2d(x, self.weight * self.scale, self.bias, padding=self.pad)


class ModulatedConv(nn.Module):
    def __init__(self, i, o, k, demodulate=True):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, o, i, k, k))
        self.style = EqualLinear(Z, i, bias=1.0)
        self.scale, self.pad, self.demodulate, self.o, self.k = 1 / math.sqrt(i * k * k), k // 2, demodulate, o, k

    def forward(self, x, w):
        b, i, h, wd = x.shape
        weight = self.scale * self.weight * self.style(w).view(b, 1, i, 1, 1)
        if self.demodulate:
            weight = weight * torch.rsqrt(weight.pow(2).sum([2, 3, 4], keepdim=True) + 1e-8)
        x = F.conv2d(x.reshape(1, b * i, h, wd), weight.view(b * self.o, i, self.k, self.k), padding=self.pad, groups=b)
        return x.view(b, self.o, h, wd)


class StyledConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.conv = ModulatedConv(i, o, 3)
        self.noise, self.bias = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1, o, 1, 1))

    def forward(self, x, w):
        x = self.conv(x, w)
        x = x + self.noise * torch.randn(x.shape[0], 1, *x.shape[2:], device=x.device) + self.bias
        return F.leaky_relu(x, 0.2) * math.sqrt(2)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        layers = []
        for _ in range(8):
            layers += [EqualLinear(Z, Z, lr_mul=0.01), nn.LeakyReLU(0.2)]
        self.mapping = nn.Sequential(*layers)
        self.const = nn.Parameter(torch.randn(1, CH[4], 4, 4))
        self.first, self.first_rgb = StyledConv(CH[4], CH[4]), ModulatedConv(CH[4], 3, 1, demodulate=False)
        self.a, self.b, self.rgb = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for r in list(CH)[1:]:
            self.a.append(StyledConv(CH[r // 2], CH[r]))
            self.b.append(StyledConv(CH[r], CH[r]))
            self.rgb.append(ModulatedConv(CH[r], 3, 1, demodulate=False))

    def forward(self, zs):
        ws = [self.mapping(F.normalize(z, dim=1) * math.sqrt(Z)) for z in zs]
        cut = random.randint(1, len(self.a)) if len(ws) > 1 else len(self.a) + 1
        x = self.first(self.const.expand(len(ws[0]), -1, -1, -1), ws[0])
        image = self.first_rgb(x, ws[0])
        for n, (a, b, rgb) in enumerate(zip(self.a, self.b, self.rgb), 1):
            w = ws[0] if n < cut else ws[-1]
            x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            x = b(a(x, w), w)
            image = F.interpolate(image, scale_factor=2, mode="bilinear", align_corners=False) + rgb(x, w)
        return image


class DBlock(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.c1, self.c2, self.skip = EqualConv(i, i, 3), EqualConv(i, o, 3), EqualConv(i, o, 1)

    def forward(self, x):
        y = F.leaky_relu(self.c2(F.leaky_relu(self.c1(x), 0.2)), 0.2)
        return (F.avg_pool2d(y, 2) + F.avg_pool2d(self.skip(x), 2)) / math.sqrt(2)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.rgb = EqualConv(3, CH[RES], 1)
        self.blocks = nn.Sequential(*[DBlock(CH[r], CH[r // 2]) for r in sorted(CH, reverse=True)[:-1]])
        self.last = EqualConv(CH[4] + 1, CH[4], 3)
        self.out = nn.Sequential(EqualLinear(CH[4] * 16, CH[4]), nn.LeakyReLU(0.2), EqualLinear(CH[4], 1))

    def forward(self, x):
        x = self.blocks(F.leaky_relu(self.rgb(x), 0.2))
        group = min(len(x), 4)
        std = torch.sqrt(x.view(group, -1, *x.shape[1:]).var(0, unbiased=False) + 1e-8).mean([1, 2, 3], keepdim=True)
        x = torch.cat([x, std.repeat(group, 1, *x.shape[2:])], 1)
        return self.out(F.leaky_relu(self.last(x), 0.2).flatten(1))


def mixing_noise(n):
    return [torch.randn(n, Z, device="cuda") for _ in range(2 if random.random() < 0.9 else 1)]


def requires_grad(net, flag):
    for p in net.parameters():
        p.requires_grad_(flag)


G, D = Generator().cuda(), Discriminator().cuda()
G_ema = copy.deepcopy(G).eval()
g_optim = torch.optim.Adam(G.parameters(), 2e-3, betas=(0.0, 0.99))
ratio = D_REG_EVERY / (D_REG_EVERY + 1)
d_optim = torch.optim.Adam(D.parameters(), 2e-3 * ratio, betas=(0.0**ratio, 0.99**ratio))
faces = torch.rand(600, 3, RES, RES) * 2 - 1
for i in range(40):
    real = faces[torch.randint(len(faces), (BATCH,))].cuda()
    if random.random() < 0.5:
        real = real.flip(3)

    requires_grad(G, False)
    requires_grad(D, True)
    fake = G(mixing_noise(BATCH))
    d_loss = F.softplus(D(fake)).mean() + F.softplus(-D(real)).mean()
    D.zero_grad()
    d_loss.backward()
    d_optim.step()
    if i % D_REG_EVERY == 0:
        real.requires_grad_(True)
        pred = D(real)
        (g,) = grad(pred.sum(), real, create_graph=True)
        r1 = g.pow(2).flatten(1).sum(1).mean()
        D.zero_grad()
        (R1_GAMMA / 2 * r1 * D_REG_EVERY + 0 * pred[0, 0]).backward()
        d_optim.step()

    requires_grad(G, True)
    requires_grad(D, False)
    g_loss = F.softplus(-D(G(mixing_noise(BATCH)))).mean()
    G.zero_grad()
    g_loss.backward()
    g_optim.step()
    with torch.no_grad():
        for p, q in zip(G_ema.parameters(), G.parameters()):
            p.lerp_(q, 1 - 0.5 ** (32 / 10000))
    if i % 10 == 0:
        with torch.no_grad():
            sample = G_ema([torch.randn(16, Z, device="cuda")])
        print(i, f"d {d_loss.item():.3f} g {g_loss.item():.3f} r1 {r1.item():.4f} sample {sample.std().item():.3f}")
