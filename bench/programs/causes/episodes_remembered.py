"""cause: growth/per-step at line 26
also right: leak/results-kept
also right: line 24
memory: 1536MiB
why: transitions of an agent lie on the device in a deque whose bound is never reached.
"""
import random
from collections import deque

import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(4, 32, 8, stride=4), nn.ReLU(), nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(256), nn.ReLU(), nn.Linear(256, 6)).cuda()
net(torch.zeros(1, 4, 84, 84, device="cuda"))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
memory = deque(maxlen=1_000_000)
random.seed(1)

state = torch.zeros(32, 4, 84, 84, device="cuda")
for step in range(1500):
    with torch.no_grad():
        action = net(state).argmax(1)
    frame = torch.rand(32, 1, 84, 84, device="cuda")
    following = torch.cat([state[:, 1:], frame], 1)
    reward = (action == 3).float()
    memory.append((state.half(), action, reward))  # here
    state = following
    if len(memory) > 4:
        states, actions, rewards = (torch.cat(it).float() for it in zip(*random.sample(memory, 2)))
        loss = (net(states).gather(1, actions.long()[:, None])[:, 0] - rewards).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
