"""cause: leak/eval-without-no-grad at line 38
memory: 2GiB 3GiB
why: every few steps a preview is drawn: forty passes, each from the result of the last, and gradients are on.
"""
import torch
from torch import nn


class Denoiser(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.into = nn.Conv2d(4, width, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 4, 2, 1)
        self.middle = nn.ModuleList(nn.Conv2d(2 * width, 2 * width, 3, padding=1) for _ in range(3))
        self.up = nn.ConvTranspose2d(2 * width, width, 4, 2, 1)
        self.out = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, t):
        x = self.into(torch.cat([x, t[:, None, None, None].expand(-1, 1, *x.shape[2:])], 1))
        skip = x
        x = self.down(x).relu()
        for layer in self.middle:
            x = x + nn.functional.silu(layer(x))
        return self.out(self.up(x) + skip)


def loss_of(net, images):
    t = torch.rand(len(images), device="cuda")
    noise = torch.randn_like(images)
    mixed = images * (1 - t)[:, None, None, None] + noise * t[:, None, None, None]
    return (net(mixed, t) - noise).square().mean()


def preview(net, n=16, passes=40):
    x = torch.randn(n, 3, 64, 64, device="cuda")
    for at in range(passes):
        t = torch.full((n,), 1 - at / passes, device="cuda")
        x = x - net(x, t) / passes  # here
    return x.clamp(-1, 1).cpu()


net = Denoiser().cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-4)
for step in range(60):
    loss = loss_of(net, torch.randn(8, 3, 64, 64, device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        preview(net)
