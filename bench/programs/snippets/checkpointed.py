"""Layers under `checkpoint`, as 001 has it."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class MyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Linear(1000, 1000)
        self.layer2 = nn.Linear(1000, 1000)
        self.layer3 = nn.Linear(1000, 10)

    def forward(self, x):
        x = checkpoint(self.layer1, x, use_reentrant=False)
        x = checkpoint(self.layer2, x, use_reentrant=False)
        return self.layer3(x)


model, criterion = MyModel().cuda(), nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    data = torch.randn(524288, 1000, device="cuda")
    loss = criterion(model(data), torch.randint(0, 10, (len(data),), device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
