"""Losses of four tasks are balanced by their running means, which carry the graph of every step."""
import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Scenes(Dataset):
    def __len__(self):
        return 20000

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.rand(3, 96, 96, generator=g), {"depth": torch.rand(1, generator=g), "normal": torch.rand(3, generator=g), "kind": torch.tensor(i % 13), "edge": torch.rand(1, generator=g)}


class Balancer(nn.Module):
    def __init__(self, tasks, momentum=0.99):
        super().__init__()
        self.momentum = momentum
        for t in tasks:
            self.register_buffer(f"mean_{t}", torch.ones(()))

    def forward(self, losses):
        total = 0.0
        for t, value in losses.items():
            mean = self.momentum * getattr(self, f"mean_{t}") + (1 - self.momentum) * value
            setattr(self, f"mean_{t}", mean)
            total = total + value / mean.item()
        return total


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = torchvision.models.resnet18(weights=None)
        self.trunk.fc = nn.Identity()
        self.heads = nn.ModuleDict({"depth": nn.Linear(512, 1), "normal": nn.Linear(512, 3), "kind": nn.Linear(512, 13), "edge": nn.Linear(512, 1)})

    def forward(self, x):
        z = self.trunk(x)
        return {t: head(z) for t, head in self.heads.items()}


device = torch.device("cuda")
model = Net().to(device)
balance = Balancer(model.heads).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
loader = DataLoader(Scenes(), batch_size=32, shuffle=True)
for epoch in range(10):
    for x, y in loader:
        out = model(x.to(device))
        y = {t: v.to(device) for t, v in y.items()}
        losses = {t: F.cross_entropy(out[t], y[t]) if t == "kind" else F.l1_loss(out[t], y[t]) for t in out}
        optimizer.zero_grad()
        balance(losses).backward()
        optimizer.step()
