"""expect: script_failed (no training step)
files: last.json={"epoch": 3}
why: the training was finished before: it is loaded at epoch 3 of 3, and no step is left to do.
"""
import json
import os

import torch
from torch import nn

EPOCHS = 3
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.Adam(model.parameters())
start = json.load(open("last.json"))["epoch"] if os.path.exists("last.json") else 0
print("resumed at epoch", start)
for epoch in range(start, EPOCHS):
    for step in range(10):
        x = torch.randn(16384, 1024, device="cuda")
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    json.dump({"epoch": epoch + 1}, open("last.json", "w"))
print("done")
