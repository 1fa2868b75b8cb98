"""A GAN with a gradient penalty: five turns of the critic, a penalty every second turn, a replay of old pictures chosen at random."""
import os, random
import torch
from torch import nn

device = os.environ.get("DEVICE", "cuda")
torch.manual_seed(7)
random.seed(7)
c = 64
generator = nn.Sequential(nn.ConvTranspose2d(100, 8 * c, 4), nn.BatchNorm2d(8 * c), nn.ReLU(), nn.ConvTranspose2d(8 * c, 4 * c, 4, 2, 1), nn.BatchNorm2d(4 * c), nn.ReLU(),
                          nn.ConvTranspose2d(4 * c, 2 * c, 4, 2, 1), nn.BatchNorm2d(2 * c), nn.ReLU(), nn.ConvTranspose2d(2 * c, c, 4, 2, 1), nn.BatchNorm2d(c), nn.ReLU(), nn.ConvTranspose2d(c, 3, 4, 2, 1), nn.Tanh()).to(device)
critic = nn.Sequential(nn.Conv2d(3, c, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(c, 2 * c, 4, 2, 1), nn.InstanceNorm2d(2 * c, affine=True), nn.LeakyReLU(0.2), nn.Conv2d(2 * c, 4 * c, 4, 2, 1),
                       nn.InstanceNorm2d(4 * c, affine=True), nn.LeakyReLU(0.2), nn.Conv2d(4 * c, 8 * c, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8 * c, 1, 4)).to(device)
og, oc = torch.optim.Adam(generator.parameters(), 1e-4, (0.0, 0.9)), torch.optim.Adam(critic.parameters(), 1e-4, (0.0, 0.9))
pool = []
for step in range(3):
    for turn in range(5):
        real = torch.randn(64, 3, 64, 64).to(device)
        with torch.no_grad():
            fake = generator(torch.randn(64, 100, 1, 1, device=device))
        pool.append(fake[torch.rand(64, device=device) < 0.25])
        if len(pool) > 4:
            pool.pop(random.randrange(len(pool)))
        old = torch.cat(pool)
        if len(old) > 32:
            old = old[torch.randperm(len(old), device=device)[:32]]
        fakes = torch.cat([fake, old])
        loss = critic(fakes).mean() - critic(real).mean()
        if turn % 2 == 0:
            mix = torch.rand(64, 1, 1, 1, device=device)
            between = (mix * real + (1 - mix) * fake).requires_grad_()
            grad, = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
            loss = loss + 10 * ((grad.flatten(1).norm(2, dim=1) - 1) ** 2).mean()
        oc.zero_grad()
        loss.backward()
        oc.step()
        print("sizes", step, turn, len(fakes))
    loss = -critic(generator(torch.randn(64, 100, 1, 1, device=device))).mean()
    og.zero_grad()
    loss.backward()
    og.step()
