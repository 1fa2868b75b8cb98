"""A gradient penalty on real pictures; the critic's memory grows until it runs out (pytorch#4661, #7343)."""
import torch
from torch import nn


def layer(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 4, 2, 1), nn.SiLU())


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(layer(3, 32), layer(32, 64), layer(64, 128), layer(128, 256))
        self.head = nn.Linear(256 * 8 * 8, 1)

    def forward(self, x):
        return self.head(self.body(x).flatten(1)).squeeze(1)


generator = nn.Sequential(
    nn.Linear(128, 256 * 8 * 8), nn.Unflatten(1, (256, 8, 8)), nn.ConvTranspose2d(256, 64, 8, 4, 2), nn.SiLU(),
    nn.ConvTranspose2d(64, 3, 8, 4, 2), nn.Tanh()).cuda()
critic = Critic().cuda()
optimizer = torch.optim.Adam(critic.parameters(), 1e-4, betas=(0.0, 0.9))
for step in range(20000):
    real = torch.randn(32, 3, 128, 128).cuda().requires_grad_()
    with torch.no_grad():
        fake = generator(torch.randn(32, 128, device="cuda"))
    optimizer.zero_grad()
    loss = critic(fake).mean() - critic(real).mean()
    loss.backward(create_graph=True)
    penalty = 10 * real.grad.flatten(1).pow(2).sum(1).mean()
    penalty.backward()
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item(), penalty.item())
