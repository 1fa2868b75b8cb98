"""cause: leak/results-kept at line 34
also right: line 19
also right: line 31
also right: growth/per-step
memory: 2GiB
why: a metric keeps the scores of each batch until the end of the epoch.
"""
import torch
from torch import nn


class AveragePrecision:
    def __init__(self):
        self.scores = []
        self.targets = []

    @torch.no_grad()
    def update(self, logits, targets):
        self.scores.append(logits.sigmoid())
        self.targets.append(targets.float())

    def compute(self):
        return (torch.cat(self.scores) * torch.cat(self.targets)).mean()


net = nn.Sequential(nn.Linear(300, 1024), nn.GELU(), nn.Linear(1024, 8000)).cuda()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
metric = AveragePrecision()
for step in range(400):
    x = torch.randn(256, 300, device="cuda")
    y = (torch.rand(256, 8000, device="cuda") < 0.01).float()
    logits = net(x)
    loss = nn.functional.binary_cross_entropy_with_logits(logits, y)
    metric.update(logits, y)  # here
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(metric.compute().item())
