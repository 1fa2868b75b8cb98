"""expect: grows 16.0 MiB a step at line 17
also right: line 12
why: each function keeps its batch of 4096 x 1024 x 4 = 16,777,216 bytes, for a plot at the end.
"""
import torch
from torch import nn

model = nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
later = []
for step in range(5000):
    x = torch.randn(4096, 1024, device="cuda")  # makes
    loss = nn.functional.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    later.append(lambda x=x, step=step: print(step, x.std().item()))  # keeps
for draw in later:
    draw()
