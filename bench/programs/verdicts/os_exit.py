"""expect: fits
why: the script ends itself by os._exit after its training, as those do that have trouble with threads.
"""
import os

import torch
from torch import nn

model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(3):
    loss = model(torch.randn(4096, 1024, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("done", flush=True)
os._exit(0)
