"""expect: out_of_memory in checkpoint at line 22
options: --gpu rtx4060-8g
why: weights are 25 x 4096 x 4096 x 4 = 1.5625 GiB; with gradients and momentum 4.7 GiB. After an epoch the best state is cloned on the
    device, weights and momentum: 3.1 GiB more make 7.8, on a card of 7.6 GiB.
"""
import copy

import torch
from torch import nn

with torch.device("cuda"):
    model = nn.Sequential(*[nn.Linear(4096, 4096, bias=False) for _ in range(25)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
best = None
for epoch in range(3):
    for step in range(12):
        x = torch.randn(32, 4096, device="cuda")
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x)
        loss.backward()
        optimizer.step()
    best = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch})  # dies
