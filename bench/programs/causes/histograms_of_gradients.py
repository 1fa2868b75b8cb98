"""cause: growth/per-step at line 18
also right: leak/results-kept
memory: 2GiB
why: a copy of each gradient is kept for a histogram that is drawn in the end.
"""
import torch
from torch import nn

model = nn.Sequential(nn.Linear(1024, 2048), nn.Tanh(), nn.Linear(2048, 2048), nn.Tanh(), nn.Linear(2048, 8)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
histograms = {name: [] for name, _ in model.named_parameters()}
for step in range(300):
    loss = model(torch.randn(64, 1024, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for name, parameter in model.named_parameters():
        if step % 2 == 0:
            histograms[name].append(parameter.grad.clone())  # here
    optimizer.step()
