"""expect: fits
within: 60 s
why: an alarm bounds the time of the job: 3 steps are done, then SIGALRM ends the process while it sleeps.
"""
import signal
import time

import torch
from torch import nn

model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(3):
    loss = model(torch.randn(4096, 1024, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
signal.alarm(2)
print("done", flush=True)
time.sleep(1000)
