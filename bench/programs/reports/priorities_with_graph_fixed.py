"""Prioritized replay: the new priorities are written into a tensor with the graph of the step that made them."""
import random

import torch
from torch import nn


class PrioritizedReplay:
    def __init__(self, capacity, shape, device):
        self.capacity, self.full, self.position = capacity, False, 0
        self.states = torch.zeros(capacity, *shape, dtype=torch.uint8)
        self.actions = torch.zeros(capacity, dtype=torch.long)
        self.rewards = torch.zeros(capacity)
        self.priorities = torch.ones(capacity, device=device)

    def push(self, state, action, reward):
        self.states[self.position], self.actions[self.position], self.rewards[self.position] = state, action, reward
        self.position = (self.position + 1) % self.capacity

    def sample(self, n):
        index = torch.randint(0, self.capacity - 1, (n,))
        return index, self.states[index].cuda().float() / 255, self.actions[index].cuda(), self.rewards[index].cuda(), self.states[index + 1].cuda().float() / 255

    def update(self, index, errors):
        self.priorities[index.cuda()] = errors.detach().abs() + 1e-6


class Q(nn.Module):
    def __init__(self, actions):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, actions))

    def forward(self, x):
        return self.body(x)


online, target = Q(6).cuda(), Q(6).cuda()
target.load_state_dict(online.state_dict())
memory = PrioritizedReplay(4096, (4, 84, 84), "cuda")
optimizer = torch.optim.Adam(online.parameters(), lr=1e-4)
for step in range(20000):
    state = torch.randint(0, 255, (4, 84, 84), dtype=torch.uint8)
    memory.push(state, random.randrange(6), random.random())
    index, s, a, r, after = memory.sample(128)
    q = online(s).gather(1, a[:, None]).squeeze(1)
    with torch.no_grad():
        best = online(after).argmax(1, keepdim=True)
        goal = r + 0.99 * target(after).gather(1, best).squeeze(1)
    errors = q - goal
    loss = errors.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    memory.update(index, errors)
    if step % 1000 == 0:
        target.load_state_dict(online.state_dict())
