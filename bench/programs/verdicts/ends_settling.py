"""expect: fits
peak: allocated at least 250 MiB
never: grows
why: batches have one of twelve sizes in a drawn order, the largest 12 x 1024 rows of 1024 x 4 bytes, 48 MiB. PyTorch reserves
    more for some steps, until it has a piece for each size; what lives after a step stays the same.
"""
import random

import torch
from torch import nn

random.seed(3)
model = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(4)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(300):
    x = torch.randn(1024 * random.randint(1, 12), 1024, device="cuda")
    loss = (model(x) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
