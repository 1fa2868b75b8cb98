"""expect: fits
never: grows
why: gradients of 4 batches are added up before each step. What lives after a step is the same each time.
"""
import torch
from torch import nn

model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
optimizer.zero_grad()
for number in range(400):
    x = torch.randn(2048, 1024, device="cuda")
    loss = nn.functional.mse_loss(model(x), x) / 4
    loss.backward()
    if number % 4 == 3:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
