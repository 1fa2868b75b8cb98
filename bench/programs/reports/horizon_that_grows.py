"""Learns a simulator by rolling it out, ten steps at first and one more in each epoch: the graph of the last epoch is twenty times that of the first."""
import torch
from torch import nn

WIDTH, PARTICLES = 512, 20_000
network = nn.Sequential(nn.Linear(6, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 6)).cuda()
optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
for epoch in range(200):
    horizon = 10 + epoch
    for batch in range(20):
        state = torch.randn(PARTICLES, 6).cuda()
        wanted = torch.randn(PARTICLES, 6).cuda()
        loss = 0
        for _ in range(horizon):
            state = state + 0.01 * network(state)
            loss = loss + (state - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
