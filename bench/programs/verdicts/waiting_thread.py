"""expect: fits
within: 60 s
why: a thread that is no daemon waits for the end of the training; a run that is stopped early must not wait for it.
"""
import threading

import torch
from torch import nn

model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(model.parameters())
stop = threading.Event()
thread = threading.Thread(target=stop.wait)
thread.start()
for step in range(100):
    loss = model(torch.randn(4096, 1024, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
stop.set()
thread.join()
