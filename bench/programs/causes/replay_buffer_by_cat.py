"""cause: growth/per-step at line 21
also right: size/one-allocation
also right: leak/results-kept
memory: 2GiB
why: a replay buffer is a tensor that each step makes anew, longer by a batch: old and new are there at once.
"""
import torch
from torch import nn

policy = nn.Sequential(nn.Linear(4096, 512), nn.Tanh(), nn.Linear(512, 18)).cuda()
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
buffer = torch.empty(0, 4096, device="cuda")
rewards = torch.empty(0, device="cuda")
state = torch.randn(512, 4096, device="cuda")
for step in range(500):
    with torch.no_grad():
        action = policy(state).argmax(-1)
        reward = torch.rand(512, device="cuda")
        # What happened, newest last.
        rewards = torch.cat([rewards, reward])
        buffer = torch.cat([buffer, state])  # here
    picked = torch.randint(len(buffer), (256,), device="cuda")
    scores = policy(buffer[picked])
    loss = -(scores.log_softmax(-1).mean(-1) * rewards[picked]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    state = torch.randn(512, 4096, device="cuda")
