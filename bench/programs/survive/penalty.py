"""A penalty on the weights, which the script adds to its loss."""

import torch
import torch.nn.functional as F
from torch import nn

from planted import STEPS, ended, size

model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(STEPS):
    x = torch.randn(size(step, 8192, 65536), 512, device="cuda")
    loss = F.mse_loss(model(x), x) + 1e-5 * sum(it.pow(2).sum() for it in model.parameters())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ended(step, loss, model)
