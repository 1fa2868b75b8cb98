"""Flow matching with a small DiT: adaptive layer norms, classifier-free labels dropped, a sampler with 4 Euler steps after training."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d, elementwise_affine=False), nn.LayerNorm(d, elementwise_affine=False)
        self.qkv, self.proj, self.heads = nn.Linear(d, 3 * d), nn.Linear(d, d), heads
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(approximate="tanh"), nn.Linear(4 * d, d))
        self.ada = nn.Sequential(nn.SiLU(), nn.Linear(d, 6 * d))

    def forward(self, x, c):
        s1, b1, g1, s2, b2, g2 = self.ada(c)[:, None].chunk(6, -1)
        h = self.norm1(x) * (1 + s1) + b1
        q, k, v = self.qkv(h).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        h = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + g1 * self.proj(h)
        return x + g2 * self.mlp(self.norm2(x) * (1 + s2) + b2)


class DiT(nn.Module):
    def __init__(self, d=768, depth=12, heads=12, patch=2, size=32, classes=1000):
        super().__init__()
        self.inp = nn.Conv2d(4, d, patch, patch)
        self.pos = nn.Parameter(torch.randn(1, (size // patch) ** 2, d) * 0.02)
        self.time, self.label = nn.Sequential(nn.Linear(256, d), nn.SiLU(), nn.Linear(d, d)), nn.Embedding(classes + 1, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(depth))
        self.out, self.patch, self.side = nn.Linear(d, patch * patch * 4), patch, size // patch

    def forward(self, x, t, y):
        freqs = torch.exp(-torch.arange(128, device=x.device) * 9.2 / 128)
        c = self.time(torch.cat([torch.cos(t[:, None] * freqs), torch.sin(t[:, None] * freqs)], -1)) + self.label(y)
        x = self.inp(x).flatten(2).transpose(1, 2) + self.pos
        for block in self.blocks:
            x = block(x, c)
        x = self.out(x).transpose(1, 2).unflatten(2, (self.side, self.side))
        return nn.functional.pixel_shuffle(x, self.patch)


def main():
    net = DiT().cuda()
    opt = torch.optim.AdamW(net.parameters(), 1e-4, betas=(0.9, 0.95))
    for step in range(10):
        x1, x0 = torch.randn(64, 4, 32, 32, device="cuda"), torch.randn(64, 4, 32, 32, device="cuda")
        t = torch.sigmoid(torch.randn(64, device="cuda"))
        y = torch.where(torch.rand(64, device="cuda") < 0.1, 1000, torch.randint(1000, (64,), device="cuda"))
        xt = (1 - t)[:, None, None, None] * x0 + t[:, None, None, None] * x1
        loss = (net(xt, t, y) - (x1 - x0)).square().mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
    with torch.no_grad():
        x = torch.randn(16, 4, 32, 32, device="cuda")
        for i in range(4):
            x = x + net(x, torch.full((16,), i / 4, device="cuda"), torch.zeros(16, dtype=torch.long, device="cuda")) / 4
    print(loss.item(), x.std().item())


main()
