"""A sweep over learning rates: a report for later, as a function, keeps the model of each."""
import torch
from torch import nn


def experiment(rate):
    model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(16)]).cuda()
    opt = torch.optim.Adam(model.parameters(), rate)
    for _ in range(4):
        loss = model(torch.randn(64, 1024, device="cuda")).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    norm = sum(it.norm().item() for it in model.parameters())
    reports.append(lambda: (rate, norm))


reports = []
for rate in (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5):
    experiment(rate)
print([report() for report in reports])
