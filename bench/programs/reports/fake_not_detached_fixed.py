"""A GAN: the discriminator learns from the generator's pictures, and the generator from the same ones afterwards."""
import torch
from torch import nn


def layers(first, last, count):
    return nn.Sequential(nn.Conv2d(first, 64, 3, padding=1), nn.LeakyReLU(0.2), *[m for _ in range(count) for m in (nn.Conv2d(64, 64, 3, padding=1), nn.LeakyReLU(0.2))], nn.Conv2d(64, last, 3, padding=1))


generator, discriminator = layers(8, 3, 3).cuda(), layers(3, 1, 2).cuda()
of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4)
of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=2e-4)
for step in range(200):
    real, noise = torch.randn(28, 3, 256, 256).cuda(), torch.randn(28, 8, 256, 256).cuda()
    fake = generator(noise)
    loss = nn.functional.softplus(-discriminator(real)).mean() + nn.functional.softplus(discriminator(fake.detach())).mean()
    of_discriminator.zero_grad()
    loss.backward()
    of_discriminator.step()
    cheat = nn.functional.softplus(-discriminator(fake)).mean()
    of_generator.zero_grad()
    cheat.backward()
    of_generator.step()
