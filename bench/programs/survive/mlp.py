"""A plain network and a loss function."""

import torch
import torch.nn.functional as F
from torch import nn

from planted import STEPS, ended, size

model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 2048), nn.GELU(), nn.Linear(2048, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(STEPS):
    n = size(step, 8192, 65536)
    x, y = torch.randn(n, 512, device="cuda"), torch.randint(0, 10, (n,), device="cuda")
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    ended(step, loss, model)
