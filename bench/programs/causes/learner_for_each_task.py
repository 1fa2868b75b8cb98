"""cause: leak/earlier-models at line 37
also right: growth/per-step
also right: line 47
also right: line 43
also right: line 42
memory: 2GiB
why: a meta-learner in the manner of Reptile adapts a copy of its network to each task, and remembers all adapted learners with their optimizers.
"""
import copy

import torch
from torch import nn


class Sine:
    """One task: a wave of some amplitude and phase."""

    def __init__(self):
        self.amplitude, self.phase = torch.rand(2) * 4 + 0.1

    def sample(self, n):
        x = torch.rand(n, 1, device="cuda") * 10 - 5
        return x, self.amplitude * torch.sin(x + self.phase)


class Learner:
    def __init__(self, net, lr=0.01):
        self.net = net
        self.optimizer = torch.optim.Adam(net.parameters(), lr=lr)


class Reptile:
    def __init__(self, net):
        self.net, self.learners = net, []

    def adapt(self, task, steps=4):
        learner = Learner(copy.deepcopy(self.net))  # here
        for _ in range(steps):
            x, y = task.sample(64)
            loss = (learner.net(x) - y).square().mean()
            learner.optimizer.zero_grad()
            loss.backward()
            learner.optimizer.step()
        with torch.no_grad():
            for mine, theirs in zip(self.net.parameters(), learner.net.parameters()):
                mine.lerp_(theirs, 0.1)
        self.learners.append((task, learner))
        return loss.item()


torch.manual_seed(0)
width = 1600
net = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)).cuda()
meta = Reptile(net)
for round in range(200):
    loss = meta.adapt(Sine())
    if round % 10 == 0:
        print(round, loss)
