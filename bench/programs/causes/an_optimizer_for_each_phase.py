"""cause: growth/per-step at line 21
also right: leak/earlier-models
also right: size/model-states
memory: 2GiB
why: each phase of training gets an optimizer of its own, and a list keeps them all with their states.
"""
import torch
from torch import nn

model = nn.Sequential(nn.Linear(2048, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 2048)).cuda()
optimizers = []
for phase in range(12):
    rate = 1e-3 * 0.7**phase
    optimizers.append(torch.optim.Adam(model.parameters(), lr=rate))
    for step in range(5):
        x = torch.randn(32, 2048, device="cuda")
        loss = (model(x) - x).square().mean()
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizers[-1].step()  # here
