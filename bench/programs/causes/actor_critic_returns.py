"""cause: leak/graph-retained at line 33
also right: line 32
also right: line 29
also right: leak/results-kept
also right: growth/per-step
memory: 1536MiB
why: the running baseline of returns is an average of values with their graphs.
"""
import torch
from torch import nn


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.eyes = nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(5184, 256))
        self.policy, self.value = nn.Linear(256, 6), nn.Linear(256, 1)

    def forward(self, frames):
        x = self.eyes(frames).relu()
        return self.policy(x), self.value(x).squeeze(1)


agent = Agent().cuda()
optimizer = torch.optim.RMSprop(agent.parameters(), lr=1e-4)
baseline = torch.zeros((), device="cuda")
for episode in range(400):
    frames = torch.randn(128, 4, 84, 84, device="cuda")
    scores, values = agent(frames)
    rewards = torch.randn(128, device="cuda")
    chosen = scores.log_softmax(1).gather(1, torch.randint(0, 6, (128, 1), device="cuda")).squeeze(1)
    loss = -(chosen * (rewards - baseline.detach())).mean() + (values - rewards).square().mean()
    baseline = 0.95 * baseline + 0.05 * (values * values).mean()  # here
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
