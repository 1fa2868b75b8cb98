"""cause: growth/per-step at line 20
also right: line 12
also right: leak/results-kept
memory: 2GiB
"""
import torch
from torch import nn


class Metric:
    def update(self, values):
        self.all = torch.cat([self.all, values]) if hasattr(self, "all") else values


net = nn.Linear(1024, 2048).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
metric = Metric()
for step in range(500):
    out = net(torch.randn(1024, 1024, device="cuda"))
    metric.update(out.detach() * 1.0)  # here
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
