"""A text-conditioned latent diffusion U-Net with cross-attention, float16 with a GradScaler, classifier-free guidance dropout."""

import math

import torch
from torch import nn
import torch.nn.functional as F

device = "cuda"
torch.manual_seed(0)


def timestep_embedding(t, dim):
    freqs = torch.exp(-math.log(10000) * torch.arange(dim // 2, device=t.device) / (dim // 2))
    a = t[:, None].float() * freqs[None]
    return torch.cat([a.cos(), a.sin()], -1)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, temb):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(32, cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.t = nn.Linear(temb, cout)
        self.n2, self.c2 = nn.GroupNorm(32, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, t):
        h = self.c1(F.silu(self.n1(x))) + self.t(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.c2(F.silu(self.n2(h)))


class SpatialTransformer(nn.Module):
    def __init__(self, c, ctx, heads=8):
        super().__init__()
        self.norm = nn.GroupNorm(32, c)
        self.n1, self.n2, self.n3 = (nn.LayerNorm(c) for _ in range(3))
        self.self_attn = nn.MultiheadAttention(c, heads, batch_first=True)
        self.cross = nn.MultiheadAttention(c, heads, kdim=ctx, vdim=ctx, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c))

    def forward(self, x, context):
        b, c, h, w = x.shape
        y = self.norm(x).flatten(2).transpose(1, 2)
        q = self.n1(y)
        y = y + self.self_attn(q, q, q, need_weights=False)[0]
        y = y + self.cross(self.n2(y), context, context, need_weights=False)[0]
        y = y + self.ff(self.n3(y))
        return x + y.transpose(1, 2).reshape(b, c, h, w)


class UNet(nn.Module):
    def __init__(self, ch=256, mult=(1, 2, 4), ctx=768):
        super().__init__()
        temb = 4 * ch
        self.ch = ch
        self.time = nn.Sequential(nn.Linear(ch, temb), nn.SiLU(), nn.Linear(temb, temb))
        self.inp = nn.Conv2d(4, ch, 3, padding=1)
        self.down, self.up, skips, c = nn.ModuleList(), nn.ModuleList(), [ch], ch
        for level, m in enumerate(mult):
            for _ in range(2):
                self.down.append(nn.ModuleList([ResBlock(c, ch * m, temb), SpatialTransformer(ch * m, ctx)]))
                c = ch * m
                skips.append(c)
            if level != len(mult) - 1:
                self.down.append(nn.Conv2d(c, c, 3, stride=2, padding=1))
                skips.append(c)
        self.mid1, self.mid2, self.mid3 = ResBlock(c, c, temb), SpatialTransformer(c, ctx), ResBlock(c, c, temb)
        for level, m in reversed(list(enumerate(mult))):
            for i in range(3):
                self.up.append(nn.ModuleList([ResBlock(c + skips.pop(), ch * m, temb), SpatialTransformer(ch * m, ctx)]))
                c = ch * m
            if level:
                self.up.append(nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(c, c, 3, padding=1)))
        self.out = nn.Sequential(nn.GroupNorm(32, c), nn.SiLU(), nn.Conv2d(c, 4, 3, padding=1))

    def forward(self, x, t, context):
        t = self.time(timestep_embedding(t, self.ch))
        hs = [self.inp(x)]
        for m in self.down:
            h = hs[-1]
            hs.append(m[1](m[0](h, t), context) if isinstance(m, nn.ModuleList) else m(h))
        h = self.mid3(self.mid2(self.mid1(hs[-1], t), context), t)
        for m in self.up:
            h = m[1](m[0](torch.cat([h, hs.pop()], 1), t), context) if isinstance(m, nn.ModuleList) else m(h)
        return self.out(h)


unet = UNet().to(device)
opt = torch.optim.AdamW(unet.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cuda")
alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, device=device), 0)
null = torch.zeros(77, 768, device=device)
for it in range(24):
    latents, text = torch.randn(16, 4, 32, 32, device=device), torch.randn(16, 77, 768, device=device)
    drop = torch.rand(16, device=device) < 0.1
    text = torch.where(drop[:, None, None], null, text)
    t = torch.randint(1000, (16,), device=device)
    noise = torch.randn_like(latents)
    a = alphas[t][:, None, None, None]
    noisy = a.sqrt() * latents + (1 - a).sqrt() * noise
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.mse_loss(unet(noisy, t, text).float(), noise)
    opt.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
