"""The loss of the critic is kept off the artist."""
import torch
from torch import nn


def network(first, last):
    return nn.Sequential(nn.Linear(first, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, last)).cuda()


artist, critic = network(64, 256), network(256, 1)
of_artist = torch.optim.SGD(artist.parameters(), 0.1)
of_critic = torch.optim.SGD(critic.parameters(), 0.1)
for _ in range(8):
    made, real = artist(torch.randn(16384, 64, device="cuda")), torch.randn(16384, 256, device="cuda")
    loss = critic(made.detach()).mean() - critic(real).mean()
    of_critic.zero_grad()
    loss.backward()
    of_critic.step()
    cheat = -critic(made).mean()
    of_artist.zero_grad()
    cheat.backward()
    of_artist.step()
