"""A sparse autoencoder logs a tenth of its codes every 50 steps; they stay on the GPU (KempnerInstitute/overcomplete#5)."""
from collections import defaultdict

import torch
from torch import nn


class Sparse(nn.Module):
    def __init__(self, width=768, codes=8192):
        super().__init__()
        self.encode, self.decode = nn.Linear(width, codes), nn.Linear(codes, width, bias=False)

    def forward(self, x):
        z = self.encode(x).relu()
        return z, self.decode(z)


def log_metrics(logs, z, loss):
    logs["loss"].append(loss.item())
    logs["z"].append(z.detach()[::10])
    logs["alive"].append((z > 0).any(0).float().mean().item())


net = Sparse().cuda()
optimizer = torch.optim.Adam(net.parameters(), 5e-4)
logs = defaultdict(list)
for step in range(40000):
    x = torch.randn(1024, 768, device="cuda")
    z, again = net(x)
    loss = (again - x).pow(2).mean() + 1e-3 * z.abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        log_metrics(logs, z, loss)
