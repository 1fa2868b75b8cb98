"""expect: fits
says: nvidia-smi
cards: none
why: the batch follows from what nvidia-smi says of the card: half of the memory, 40 KiB a row.
"""
import subprocess

import torch
from torch import nn

answer = subprocess.check_output(["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"], text=True)
batch = int(answer.split()[0]) * 1024 // 2 // 40
print("batch", batch)
model = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    x = torch.randn(batch, 1024, device="cuda")
    loss = nn.functional.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
