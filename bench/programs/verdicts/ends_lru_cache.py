"""expect: fits
peak: allocated at least 96 MiB
never: grows
why: the cache fills in 16 steps, to 16 x 1024 x 1024 x 4 = 64 MiB, and then gives up one table for each new one. Weights,
    gradients and one moment are 12 MiB more, two activations and the batch at least 24.
"""
import functools

import torch
from torch import nn


@functools.lru_cache(maxsize=16)
def table(shift):
    return torch.randn(1024, 1024, device="cuda") / (1 + shift)


model = nn.Linear(1024, 1024, bias=False).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(300):
    x = torch.randn(2048, 1024, device="cuda") @ table(step % 40)
    loss = (model(x) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
