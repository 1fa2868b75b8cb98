"""DCGAN as in the tutorial: two optimizers, three backward passes, no autocast."""

import torch
from torch import nn

nz, ngf, ndf, size, batch_size, steps = 100, 128, 128, 128, 512, 12
device = "cuda" if torch.cuda.is_available() else "cpu"


def weights_init(m):
    if "Conv" in m.__class__.__name__:
        nn.init.normal_(m.weight.data, 0.0, 0.02)


def up(i, o):
    return [nn.ConvTranspose2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)]


def down(i, o):
    return [nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2, inplace=True)]


netG = nn.Sequential(
    nn.ConvTranspose2d(nz, ngf * 8, 4, 1, 0, bias=False), nn.BatchNorm2d(ngf * 8), nn.ReLU(True),
    *up(ngf * 8, ngf * 4), *up(ngf * 4, ngf * 4), *up(ngf * 4, ngf * 2), *up(ngf * 2, ngf),
    nn.ConvTranspose2d(ngf, 3, 4, 2, 1, bias=False), nn.Tanh(),
).to(device)
netD = nn.Sequential(
    nn.Conv2d(3, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
    *down(ndf, ndf * 2), *down(ndf * 2, ndf * 4), *down(ndf * 4, ndf * 4), *down(ndf * 4, ndf * 8),
    nn.Conv2d(ndf * 8, 1, 4, 1, 0, bias=False), nn.Sigmoid(),
).to(device)
netG.apply(weights_init)
netD.apply(weights_init)
criterion = nn.BCELoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=0.0002, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=0.0002, betas=(0.5, 0.999))
G_losses, D_losses = [], []
for i in range(steps):
    netD.zero_grad()
    real = torch.rand(batch_size, 3, size, size, device=device) * 2 - 1
    label = torch.full((batch_size,), 1.0, device=device)
    errD_real = criterion(netD(real).view(-1), label)
    errD_real.backward()
    fake = netG(torch.randn(batch_size, nz, 1, 1, device=device))
    label.fill_(0.0)
    errD_fake = criterion(netD(fake.detach()).view(-1), label)
    errD_fake.backward()
    optimizerD.step()
    netG.zero_grad()
    label.fill_(1.0)
    errG = criterion(netD(fake).view(-1), label)
    errG.backward()
    optimizerG.step()
    G_losses.append(errG.item())
    D_losses.append((errD_real + errD_fake).item())
