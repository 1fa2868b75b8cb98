"""expect: grows 4.0 MiB a step at line 13
also right: line 19
why: Adam keeps two moments of 2048 x 2048 x 4 = 16,777,216 bytes. Each epoch makes a new one and the old one stays in the list:
    33,554,432 bytes in 8 steps are 4,194,304 a step.
"""
import torch
from torch import nn

model = nn.Linear(2048, 2048, bias=False).cuda()
used = []
for epoch in range(1000):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3 * 0.99**epoch)
    used.append(optimizer)  # keeps
    for step in range(8):
        x = torch.randn(1024, 2048, device="cuda")
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # makes
