"""A generator that is trained at 32, 64, 128, 256 and 512 pixels, one stage after the other, with the batch of the first stage."""
import torch
import torch.nn.functional as F
from torch import nn


class Generator(nn.Module):
    def __init__(self, stages=6, ch=64):
        super().__init__()
        self.start = nn.Linear(128, ch * 16 * 16)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(ch, ch, 3, 1, 1), nn.LeakyReLU(0.2), nn.Conv2d(ch, ch, 3, 1, 1), nn.LeakyReLU(0.2)) for _ in range(stages))
        self.rgb = nn.ModuleList(nn.Conv2d(ch, 3, 1) for _ in range(stages))
        self.ch = ch

    def forward(self, z, stage):
        x = self.start(z).view(-1, self.ch, 16, 16)
        for block in self.blocks[: stage + 1]:
            x = block(F.interpolate(x, scale_factor=2))
        return self.rgb[stage](x)


class Critic(nn.Module):
    def __init__(self, stages=6, ch=64):
        super().__init__()
        self.rgb = nn.ModuleList(nn.Conv2d(3, ch, 1) for _ in range(stages))
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(ch, ch, 3, 1, 1), nn.LeakyReLU(0.2)) for _ in range(stages))
        self.out = nn.Linear(ch, 1)

    def forward(self, x, stage):
        x = self.rgb[stage](x)
        for block in reversed(self.blocks[: stage + 1]):
            x = F.avg_pool2d(block(x), 2)
        return self.out(x.mean((2, 3)))


g, d = Generator().cuda(), Critic().cuda()
opt_g, opt_d = torch.optim.Adam(g.parameters(), 1e-4), torch.optim.Adam(d.parameters(), 1e-4)
batch = {0: 32, 1: 32, 2: 32, 3: 32, 4: 32}
for stage in range(5):
    for step in range(200):
        n = batch[stage]
        real = torch.rand(n, 3, 32 * 2 ** stage, 32 * 2 ** stage).cuda()
        fake = g(torch.randn(n, 128, device="cuda"), stage)
        loss_d = F.softplus(d(fake.detach(), stage)).mean() + F.softplus(-d(real, stage)).mean()
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()
        loss_g = F.softplus(-d(fake, stage)).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
