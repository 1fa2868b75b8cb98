"""Continual learning: each task gets a new adapter and a copy of the network before it, for the distances (WuYichen-97/SD-Lora-CL#11)."""
import copy

import torch
from torch import nn


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.ModuleList(nn.Linear(2048, 2048) for _ in range(16))
        self.adapters = nn.ModuleList()
        self.head = nn.Linear(2048, 10)
        self.body.requires_grad_(False)

    def forward(self, x):
        for layer in self.body:
            more = sum(up(down(x)) for down, up in self.adapters)
            x = torch.relu(layer(x) + more)
        return self.head(x)


class Learner:
    def __init__(self):
        self.network, self.olds = Adapted().cuda(), []

    def update_network(self):
        self.olds.append(copy.deepcopy(self.network.adapters).cpu())
        self.network.adapters.append(nn.ModuleList([nn.Linear(2048, 16, bias=False), nn.Linear(16, 2048, bias=False)]).cuda())

    def learn(self, steps):
        self.update_network()
        opt = torch.optim.AdamW([p for p in self.network.parameters() if p.requires_grad], 1e-3)
        for _ in range(steps):
            x, y = torch.randn(64, 2048).cuda(), torch.randint(0, 10, (64,)).cuda()
            loss = nn.functional.cross_entropy(self.network(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()


learner = Learner()
for task in range(100):
    learner.learn(10)
