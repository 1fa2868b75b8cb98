"""The same; the steps are remembered as bytes on the host, 20,000 of them."""
import random
from collections import deque

import torch
from torch import nn

memory = deque(maxlen=20_000)
network = nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(5184, 512), nn.ReLU(), nn.Linear(512, 6)).cuda()
optimizer = torch.optim.Adam(network.parameters(), lr=1e-4)
state = torch.rand(4, 84, 84).cuda()
for frame in range(1_000_000):
    with torch.no_grad():
        action = network(state[None]).argmax(1)
    memory.append((state.mul(255).byte().cpu(), action.cpu(), random.random()))
    state = torch.rand(4, 84, 84).cuda()
    if frame >= 1000 and frame % 4 == 0:
        states, actions, rewards = zip(*random.sample(memory, 32))
        values = network(torch.stack(states).cuda().float().div(255)).gather(1, torch.stack(actions).cuda())
        loss = (values.squeeze(1) - torch.tensor(rewards).cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
