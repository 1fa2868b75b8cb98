"""cause: leak/results-kept at line 36
also right: growth/per-step
also right: line 37
also right: line 28
memory: 2GiB
why: for a distance of distributions, feature maps of real and made pictures are kept, whole, and not cleared between epochs.
"""
import torch
from torch import nn


def down(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.LeakyReLU(0.2))


def up(a, b):
    return nn.Sequential(nn.ConvTranspose2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.ReLU())


class Distance:
    def __init__(self, extractor):
        self.extractor = extractor.eval()
        self.real, self.made = [], []

    def features(self, images):
        x = images
        for layer in self.extractor:
            x = layer(x)
        return x

    @torch.no_grad()
    def update(self, real, made):
        # Means are taken at the end, over everything.
        real = (real + 1) / 2
        made = (made + 1) / 2
        self.real.append(self.features(real))  # here
        self.made.append(self.features(made))

    def compute(self):
        a, b = (sum(x.mean((0, 2, 3)) for x in it) / len(it) for it in (self.real, self.made))
        return (a - b).square().sum().item()


G = nn.Sequential(nn.ConvTranspose2d(64, 128, 4), nn.ReLU(), up(128, 64), up(64, 32), up(32, 16), nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh()).cuda()
D = nn.Sequential(down(3, 32), down(32, 64), down(64, 128), nn.Conv2d(128, 1, 8)).cuda()
distance = Distance(nn.Sequential(down(3, 32), down(32, 64)).cuda())
g_step, d_step = (torch.optim.Adam(it.parameters(), lr=2e-4, betas=(0.5, 0.999)) for it in (G, D))
bce = nn.BCEWithLogitsLoss()
for epoch in range(10):
    for _ in range(12):
        real = torch.rand(32, 3, 64, 64, device="cuda") * 2 - 1
        fake = G(torch.randn(32, 64, 1, 1, device="cuda"))
        yes, no = torch.ones(32, device="cuda"), torch.zeros(32, device="cuda")
        d_loss = bce(D(real).flatten(), yes) + bce(D(fake.detach()).flatten(), no)
        d_step.zero_grad()
        d_loss.backward()
        d_step.step()
        g_loss = bce(D(fake).flatten(), yes)
        g_step.zero_grad()
        g_loss.backward()
        g_step.step()
    for _ in range(24):
        with torch.no_grad():
            made = G(torch.randn(64, 64, 1, 1, device="cuda"))
        distance.update(torch.rand(64, 3, 64, 64, device="cuda") * 2 - 1, made)
    print(epoch, distance.compute())
