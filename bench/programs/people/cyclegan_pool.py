"""CycleGAN: two generators, two discriminators, instance norm, reflection padding, a pool of old pictures, three losses."""
import itertools
import random
import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.block = nn.Sequential(
            nn.ReflectionPad2d(1), nn.Conv2d(c, c, 3), nn.InstanceNorm2d(c), nn.ReLU(True), nn.ReflectionPad2d(1), nn.Conv2d(c, c, 3), nn.InstanceNorm2d(c)
        )

    def forward(self, x):
        return x + self.block(x)


def generator(c=64, blocks=9):
    layers = [nn.ReflectionPad2d(3), nn.Conv2d(3, c, 7), nn.InstanceNorm2d(c), nn.ReLU(True)]
    for i in (1, 2):
        layers += [nn.Conv2d(c * i, c * i * 2, 3, 2, 1), nn.InstanceNorm2d(c * i * 2), nn.ReLU(True)]
    layers += [Residual(4 * c) for _ in range(blocks)]
    for i in (4, 2):
        layers += [nn.ConvTranspose2d(c * i, c * i // 2, 3, 2, 1, output_padding=1), nn.InstanceNorm2d(c * i // 2), nn.ReLU(True)]
    return nn.Sequential(*layers, nn.ReflectionPad2d(3), nn.Conv2d(c, 3, 7), nn.Tanh())


def discriminator(c=64):
    layers, i = [nn.Conv2d(3, c, 4, 2, 1), nn.LeakyReLU(0.2, True)], c
    for stride in (2, 2, 1):
        layers += [nn.Conv2d(i, 2 * i, 4, stride, 1), nn.InstanceNorm2d(2 * i), nn.LeakyReLU(0.2, True)]
        i *= 2
    return nn.Sequential(*layers, nn.Conv2d(i, 1, 4, 1, 1))


class Pool:
    def __init__(self, size=50):
        self.size, self.images = size, []

    def query(self, images):
        result = []
        for image in images.detach():
            image = image[None]
            if len(self.images) < self.size:
                self.images.append(image)
                result.append(image)
            elif random.random() > 0.5:
                n = random.randrange(self.size)
                result.append(self.images[n].clone())
                self.images[n] = image
            else:
                result.append(image)
        return torch.cat(result)


torch.manual_seed(0)
random.seed(0)
g_ab, g_ba, d_a, d_b = generator().cuda(), generator().cuda(), discriminator().cuda(), discriminator().cuda()
opt_g = torch.optim.Adam(itertools.chain(g_ab.parameters(), g_ba.parameters()), 2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(itertools.chain(d_a.parameters(), d_b.parameters()), 2e-4, betas=(0.5, 0.999))
mse, l1 = nn.MSELoss(), nn.L1Loss()
pool_a, pool_b = Pool(), Pool()
for step in range(60):
    a, b = torch.rand(4, 3, 256, 256).cuda() * 2 - 1, torch.rand(4, 3, 256, 256).cuda() * 2 - 1
    for d in (d_a, d_b):
        d.requires_grad_(False)
    opt_g.zero_grad()
    fake_b, fake_a = g_ab(a), g_ba(b)
    told_b, told_a = d_b(fake_b), d_a(fake_a)
    loss = mse(told_b, torch.ones_like(told_b)) + mse(told_a, torch.ones_like(told_a))
    loss = loss + 10 * (l1(g_ba(fake_b), a) + l1(g_ab(fake_a), b)) + 5 * (l1(g_ab(b), b) + l1(g_ba(a), a))
    loss.backward()
    opt_g.step()
    for d in (d_a, d_b):
        d.requires_grad_(True)
    opt_d.zero_grad()
    for d, real, fake in ((d_a, a, pool_a.query(fake_a)), (d_b, b, pool_b.query(fake_b))):
        on_real, on_fake = d(real), d(fake)
        (0.5 * (mse(on_real, torch.ones_like(on_real)) + mse(on_fake, torch.zeros_like(on_fake)))).backward()
    opt_d.step()
    if step % 10 == 0:
        print(step, loss.item())
