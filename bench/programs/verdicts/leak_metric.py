"""expect: grows 16.0 MiB a step at line 15
also right: line 35
why: each of 4 validation batches adds 8192 x 512 x 4 = 16,777,216 bytes to a state that is never reset. An epoch has 4 steps and 4
    such batches, so 16,777,216 bytes a step; it comes in stairs of 64 MiB.
"""
import torch
from torch import nn


class Gathered:
    def __init__(self):
        self.states = []

    def update(self, values):
        self.states.append(values)  # keeps

    def compute(self):
        return torch.stack([it.mean() for it in self.states]).mean()


model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
metric = Gathered()
for epoch in range(2000):
    model.train()
    for step in range(4):
        x = torch.randn(8192, 512, device="cuda")
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        for step in range(4):
            metric.update(model(torch.randn(8192, 512, device="cuda")))  # makes
    print(epoch, metric.compute().item())
