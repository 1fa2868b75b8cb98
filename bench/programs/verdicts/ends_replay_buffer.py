"""expect: fits
peak: allocated at least 130 MiB
never: grows
why: the buffer is full after 32 steps, with 32 x 1024 x 1024 x 4 = 128 MiB, and holds no more than that.
"""
import collections
import random

import torch
from torch import nn

buffer = collections.deque(maxlen=32)
policy = nn.Sequential(nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 4)).cuda()
optimizer = torch.optim.Adam(policy.parameters())
for step in range(500):
    buffer.append(torch.randn(1024, 1024, device="cuda"))
    states = random.choice(buffer)
    loss = policy(states).logsumexp(1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
