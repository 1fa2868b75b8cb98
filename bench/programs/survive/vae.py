"""A variational autoencoder, which draws inside its forward pass."""

import torch
import torch.nn.functional as F
from torch import nn

from planted import STEPS, ended, size

class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 128))
        self.d = nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 784))

    def forward(self, x):
        mean, log = self.e(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (log / 2).exp()
        return self.d(z), mean, log


model = VAE().cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(STEPS):
    x = torch.rand(size(step, 16384, 131072), 784, device="cuda")
    out, mean, log = model(x)
    loss = F.binary_cross_entropy_with_logits(out, x) - 0.001 * (1 + log - mean.pow(2) - log.exp()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ended(step, loss, model)
