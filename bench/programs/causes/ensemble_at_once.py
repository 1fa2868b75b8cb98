"""cause: size/model-states
memory: 5GiB 3GiB
why: ten models of an ensemble are trained side by side, each with Adam.
"""
import torch
from torch import nn


def member():
    return nn.Sequential(nn.Linear(512, 3000), nn.ReLU(), nn.Linear(3000, 3000), nn.ReLU(), nn.Linear(3000, 3000), nn.ReLU(), nn.Linear(3000, 10)).cuda()


members = [member() for _ in range(20)]
optimizers = [torch.optim.Adam(it.parameters(), lr=1e-3) for it in members]
for step in range(5):
    x, y = torch.randn(256, 512, device="cuda"), torch.randint(0, 10, (256,), device="cuda")
    for model, optimizer in zip(members, optimizers):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
