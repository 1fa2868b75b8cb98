"""cause: size/model-states at line 26
memory: 3GiB
why: sixteen experts, of which each word sees one; all have gradients and states.
"""
import torch
from torch import nn


class Experts(nn.Module):
    def __init__(self, n=16, d=512):
        super().__init__()
        self.gate = nn.Linear(d, n)
        self.parts = nn.ModuleList(nn.Sequential(nn.Linear(d, 8 * d), nn.GELU(), nn.Linear(8 * d, d)) for _ in range(n))

    def forward(self, x):
        choice = self.gate(x).argmax(-1)
        return sum(part(x) * (choice == i).unsqueeze(-1) for i, part in enumerate(self.parts))


model = nn.Sequential(Experts(), Experts(), Experts()).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    loss = model(torch.randn(64, 512, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # here
