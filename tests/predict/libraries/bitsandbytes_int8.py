"""Layers in 8 bits under trained ones, and Adam of 8 bits."""

import bitsandbytes as bnb
import torch
from torch import nn

model = nn.Sequential(nn.Linear(256, 512), bnb.nn.Linear8bitLt(512, 512, has_fp16_weights=False, threshold=6.0), nn.ReLU(), nn.Linear(512, 10)).half().cuda()
model[1].requires_grad_(False)
optimizer = bnb.optim.Adam8bit([it for it in model.parameters() if it.requires_grad], 1e-3)
for _ in range(4):
    loss = nn.functional.cross_entropy(model(torch.randn(32, 256, device="cuda").half()).float(), torch.randint(0, 10, (32,), device="cuda"))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
