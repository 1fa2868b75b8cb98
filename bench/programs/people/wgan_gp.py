"""WGAN with a gradient penalty: five steps of the critic for one of the generator, two optimizers, an average of the generator."""

import copy

import torch
import torch.nn as nn


class GBlock(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.body = nn.Sequential(nn.BatchNorm2d(i), nn.ReLU(), nn.Upsample(scale_factor=2), nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1))
        self.skip = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(i, o, 1))

    def forward(self, x):
        return self.body(x) + self.skip(x)


class DBlock(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.body = nn.Sequential(nn.ReLU(), nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.AvgPool2d(2))
        self.skip = nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(i, o, 1))

    def forward(self, x):
        return self.body(x) + self.skip(x)


class Generator(nn.Module):
    def __init__(self, ch=128):
        super().__init__()
        self.fc = nn.Linear(128, 4 * 4 * ch * 4)
        self.blocks = nn.Sequential(GBlock(ch * 4, ch * 4), GBlock(ch * 4, ch * 2), GBlock(ch * 2, ch * 2), GBlock(ch * 2, ch))
        self.out = nn.Sequential(nn.BatchNorm2d(ch), nn.ReLU(), nn.Conv2d(ch, 3, 3, padding=1), nn.Tanh())

    def forward(self, z):
        return self.out(self.blocks(self.fc(z).view(len(z), -1, 4, 4)))


class Critic(nn.Module):
    def __init__(self, ch=128):
        super().__init__()
        self.blocks = nn.Sequential(nn.Conv2d(3, ch, 3, padding=1), DBlock(ch, ch), DBlock(ch, ch * 2), DBlock(ch * 2, ch * 4), DBlock(ch * 4, ch * 4))
        self.fc = nn.Linear(ch * 4, 1)

    def forward(self, x):
        return self.fc(self.blocks(x).relu().sum((2, 3)))


def gradient_penalty(critic, real, fake):
    eps = torch.rand(len(real), 1, 1, 1, device=real.device)
    mix = (eps * real + (1 - eps) * fake).requires_grad_(True)
    grad = torch.autograd.grad(critic(mix).sum(), mix, create_graph=True)[0]
    return ((grad.flatten(1).norm(2, dim=1) - 1) ** 2).mean()


gen, critic = Generator().cuda(), Critic().cuda()
average = copy.deepcopy(gen)
opt_g = torch.optim.Adam(gen.parameters(), lr=2e-4, betas=(0.0, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.0, 0.9))
batch = 48
for it in range(6):
    for _ in range(5):
        real = torch.rand(batch, 3, 64, 64, device="cuda") * 2 - 1
        with torch.no_grad():
            fake = gen(torch.randn(batch, 128, device="cuda"))
        loss_c = critic(fake).mean() - critic(real).mean() + 10 * gradient_penalty(critic, real, fake)
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()
    loss_g = -critic(gen(torch.randn(batch, 128, device="cuda"))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    with torch.no_grad():
        for a, p in zip(average.parameters(), gen.parameters()):
            a.lerp_(p, 0.001)
