"""A policy by diffusion: pictures of two cameras through one encoder, actions through a U-Net of one dimension, an average of the weights beside."""

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models import resnet18


class Block(nn.Module):
    def __init__(self, a, b, condition):
        super().__init__()
        self.one = nn.Sequential(nn.Conv1d(a, b, 5, padding=2), nn.GroupNorm(8, b), nn.Mish())
        self.two = nn.Sequential(nn.Conv1d(b, b, 5, padding=2), nn.GroupNorm(8, b), nn.Mish())
        self.film = nn.Sequential(nn.Mish(), nn.Linear(condition, 2 * b))
        self.skip = nn.Conv1d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x, condition):
        scale, shift = self.film(condition)[..., None].chunk(2, 1)
        return self.two(self.one(x) * (1 + scale) + shift) + self.skip(x)


class Policy(nn.Module):
    def __init__(self, actions=10, widths=(256, 512, 1024)):
        super().__init__()
        self.eyes = resnet18(weights=None, norm_layer=lambda n: nn.GroupNorm(n // 16, n))
        self.eyes.fc = nn.Identity()
        self.steps = nn.Embedding(100, 256)
        condition = 2 * 2 * 512 + 256
        sizes = [actions, *widths]
        self.down = nn.ModuleList([Block(a, b, condition) for a, b in zip(sizes, sizes[1:])])
        self.middle = Block(widths[-1], widths[-1], condition)
        self.up = nn.ModuleList([Block(2 * b, a, condition) for a, b in zip([widths[0], *widths], widths)][::-1])
        self.out = nn.Conv1d(widths[0], actions, 1)

    def forward(self, noisy, t, pictures):
        b = len(noisy)
        seen = self.eyes(pictures.flatten(0, 2)).view(b, -1)
        condition = torch.cat([seen, self.steps(t)], 1)
        x, kept = noisy, []
        for at, block in enumerate(self.down):
            x = block(x, condition)
            kept.append(x)
            x = F.avg_pool1d(x, 2) if at + 1 < len(self.down) else x
        x = self.middle(x, condition)
        for block in self.up:
            other = kept.pop()
            x = F.interpolate(x, size=other.shape[-1]) if x.shape[-1] != other.shape[-1] else x
            x = block(torch.cat([x, other], 1), condition)
        return self.out(x)


torch.manual_seed(0)
policy = Policy().cuda()
average = copy.deepcopy(policy).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4, betas=(0.95, 0.999))
alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), 0).cuda()
for step in range(40):
    actions, pictures = torch.randn(96, 10, 64), torch.rand(96, 2, 2, 3, 96, 96)
    actions, pictures = actions.cuda(), pictures.cuda()
    t, noise = torch.randint(0, 100, (96,), device="cuda"), torch.randn_like(actions)
    a = alphas[t][:, None, None]
    loss = F.mse_loss(policy(a.sqrt() * actions + (1 - a).sqrt() * noise, t, pictures), noise)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for mine, theirs in zip(average.parameters(), policy.parameters()):
            mine.lerp_(theirs, 0.01)
print("done", loss.item())
