"""expect: fits
never: grows
peak: allocated at least 320 MiB
why: the first epoch of 40 steps keeps the features of a frozen network, 8 MiB each; later epochs read them.
"""
import torch
from torch import nn

frozen = nn.Linear(1024, 2048).cuda().requires_grad_(False)
head = nn.Linear(2048, 10).cuda()
optimizer = torch.optim.Adam(head.parameters())
features = {}
for epoch in range(50):
    for index in range(40):
        if index not in features:
            features[index] = frozen(torch.randn(1024, 1024, device="cuda"))
        loss = head(features[index]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
