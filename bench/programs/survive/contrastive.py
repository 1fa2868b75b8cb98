"""One model sees two views of a batch, and one backward pass goes through both."""

import torch
import torch.nn.functional as F
from torch import nn

from planted import STEPS, ended, size

model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 128)).cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(STEPS):
    n = size(step, 4096, 24576)
    x = torch.randn(n, 512, device="cuda")
    a, b = (F.normalize(model(x + 0.1 * torch.randn_like(x))) for _ in range(2))
    loss = F.cross_entropy(a[:4096] @ b[:4096].T / 0.1, torch.arange(min(n, 4096), device="cuda")) + (a - b).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ended(step, loss, model)
