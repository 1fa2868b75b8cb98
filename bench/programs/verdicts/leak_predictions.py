"""expect: grows 16.0 MiB a step at line 20
also right: line 15
runs out: between step 1380 and 1480
why: each `out` is 4096 x 1024 x 4 = 16,777,216 bytes and stays in `predictions`; backward frees what its graph held. The
    card has 24,084 MiB, the context takes 616, and the rest of the training less than 300: 23,200 / 16 = 1,450.
"""
import torch
from torch import nn

model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
predictions = []
for step in range(10_000):
    x = torch.randn(4096, 1024, device="cuda")
    out = model(x)  # makes
    loss = nn.functional.mse_loss(out, x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    predictions.append(out)  # keeps
    if step % 100 == 0:
        print(step, loss.item())
