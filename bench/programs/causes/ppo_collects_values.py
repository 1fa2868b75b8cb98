"""cause: leak/eval-without-no-grad at line 36
also right: leak/graph-retained
also right: leak/results-kept
also right: line 38
also right: line 39
memory: 2GiB
why: while experience is collected nothing goes back, and yet actions, log-probabilities and values are kept with their graphs.
"""
import torch
from torch import nn
from torch.distributions import Categorical


class ActorCritic(nn.Module):
    def __init__(self, actions=15):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(), nn.Flatten(),
            nn.Linear(64 * 16 * 16, 256), nn.ReLU(),
        )
        self.policy = nn.Linear(256, actions)
        self.value = nn.Linear(256, 1)

    def forward(self, frames):
        hidden = self.body(frames)
        return Categorical(logits=self.policy(hidden)), self.value(hidden).squeeze(-1)


device = torch.device("cuda")
agent = ActorCritic().to(device)
optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
frames = torch.rand(32, 3, 64, 64, device=device)
for update in range(3):
    observed, chosen, likely, worth, rewards = [], [], [], [], []
    for t in range(256):
        distribution, value = agent(frames)  # here
        action = distribution.sample()
        observed.append(frames.half()), chosen.append(action), likely.append(distribution.log_prob(action))
        worth.append(value)
        rewards.append(torch.rand(32, device=device))
        frames = torch.rand(32, 3, 64, 64, device=device)
    returns, running = [], worth[-1].detach()
    for reward in reversed(rewards):
        running = reward + 0.99 * running
        returns.insert(0, running)
    old, returns = torch.stack(likely).detach(), torch.stack(returns)
    advantages = returns - torch.stack(worth).detach()
    for t in torch.randperm(256).split(16):
        t = t.tolist()
        batch = torch.cat([observed[it] for it in t]).float()
        distribution, value = agent(batch)
        ratio = (distribution.log_prob(torch.cat([chosen[it] for it in t])) - old[t].flatten()).exp()
        policy_loss = -torch.min(ratio * advantages[t].flatten(), ratio.clamp(0.8, 1.2) * advantages[t].flatten()).mean()
        loss = policy_loss + 0.5 * (value - returns[t].flatten()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
