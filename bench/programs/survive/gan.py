"""A DCGAN: two models, three backward passes a step."""

import torch
import torch.nn.functional as F
from torch import nn

from planted import STEPS, ended, size

G = nn.Sequential(
    nn.ConvTranspose2d(100, 256, 4), nn.BatchNorm2d(256), nn.ReLU(True), nn.ConvTranspose2d(256, 128, 4, 2, 1), nn.BatchNorm2d(128), nn.ReLU(True),
    nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.ReLU(True), nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh(),
).cuda()
D = nn.Sequential(
    nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2, True), nn.Conv2d(64, 128, 4, 2, 1), nn.BatchNorm2d(128), nn.LeakyReLU(0.2, True),
    nn.Conv2d(128, 256, 4, 2, 1), nn.BatchNorm2d(256), nn.LeakyReLU(0.2, True), nn.Conv2d(256, 1, 4), nn.Flatten(0),
).cuda()
of_g, of_d = (torch.optim.Adam(it.parameters(), 2e-4, betas=(0.5, 0.999)) for it in (G, D))
for step in range(STEPS):
    n = size(step, 256, 2048)
    D.zero_grad()
    F.binary_cross_entropy_with_logits(D(torch.randn(n, 3, 32, 32, device="cuda")), torch.ones(n, device="cuda")).backward()
    fake = G(torch.randn(n, 100, 1, 1, device="cuda"))
    F.binary_cross_entropy_with_logits(D(fake.detach()), torch.zeros(n, device="cuda")).backward()
    of_d.step()
    G.zero_grad()
    loss = F.binary_cross_entropy_with_logits(D(fake), torch.ones(n, device="cuda"))
    loss.backward()
    of_g.step()
    ended(step, loss, G)
