"""expect: fits
says: total_memory
cards: none
why: large cards get the large network: another card would run another program.
"""
import torch
from torch import nn

gib = torch.cuda.get_device_properties(0).total_memory / 2**30
width = 4096 if gib > 20 else 2048 if gib > 10 else 1024
model = nn.Sequential(nn.Linear(512, width), nn.ReLU(), nn.Linear(width, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(50):
    x = torch.randn(8192, 512, device="cuda")
    loss = nn.functional.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
