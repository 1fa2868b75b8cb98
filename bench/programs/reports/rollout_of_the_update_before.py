"""PPO with pictures: each update collects a rollout of 128 steps in 288 environments. The rollout of the update before lives until the next one is complete."""
import torch
from torch import nn
from torch.distributions import Categorical

STEPS, ENVS = 128, 288


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(5184, 512), nn.ReLU())
        self.actor, self.critic = nn.Linear(512, 6), nn.Linear(512, 1)

    def forward(self, x):
        x = self.body(x)
        return Categorical(logits=self.actor(x)), self.critic(x).squeeze(-1)


@torch.no_grad()
def collect(policy):
    pictures, actions = [], []
    picture = torch.rand(ENVS, 4, 84, 84).cuda()
    for _ in range(STEPS):
        chosen, _ = policy(picture)
        action = chosen.sample()
        pictures.append(picture)
        actions.append(action)
        picture = torch.rand(ENVS, 4, 84, 84).cuda()
    return {"pictures": torch.cat(pictures), "actions": torch.cat(actions)}


policy = Policy().cuda()
optimizer = torch.optim.Adam(policy.parameters(), lr=2.5e-4)
for update in range(1000):
    rollout = collect(policy)
    for chosen in torch.randperm(STEPS * ENVS).cuda().split(512):
        distribution, values = policy(rollout["pictures"][chosen])
        loss = -distribution.log_prob(rollout["actions"][chosen]).mean() + values.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
