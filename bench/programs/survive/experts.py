"""A mixture of experts that leaves its balancing loss in an attribute."""

import torch
import torch.nn.functional as F
from torch import nn

from planted import STEPS, ended, size

class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(512, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(4))
        self.balance = None

    def forward(self, x):
        shares = self.gate(x).softmax(-1)
        self.balance = shares.mean(0).pow(2).sum()
        return sum(shares[:, i : i + 1] * it(x) for i, it in enumerate(self.experts))


model = Experts().cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(STEPS):
    x = torch.randn(size(step, 8192, 65536), 512, device="cuda")
    loss = F.mse_loss(model(x), x) + 0.01 * model.balance
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ended(step, loss, model)
