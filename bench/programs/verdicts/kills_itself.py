"""expect: fits
why: after its training the script sends itself SIGTERM, as some do to end their children too.
"""
import os
import signal

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
os.kill(os.getpid(), signal.SIGTERM)
