"""cause: leak/graph-retained at line 25
also right: leak/results-kept
also right: growth/per-step
also right: line 22
also right: line 23
also right: line 24
memory: 2GiB
why: log-probabilities of all episodes are kept with their graphs.
"""
import torch
from torch import nn

policy = nn.Sequential(nn.Linear(512, 1024), nn.Tanh(), nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 16)).cuda()
optimizer = torch.optim.Adam(policy.parameters())
history = []
for episode in range(200):
    states = torch.randn(2048, 512, device="cuda")
    rewards = []
    total = 0.0
    for at in range(4):
        part = states[at * 512:(at + 1) * 512]
        dist = torch.distributions.Categorical(logits=policy(part))
        actions = dist.sample()
        score = dist.log_prob(actions)
        history.append(score)  # here
        total = total - score.mean()
    optimizer.zero_grad()
    total.backward(retain_graph=True)
    optimizer.step()
