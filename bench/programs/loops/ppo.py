"""PPO: a rollout without gradients, then epochs of minibatches over it; one network with two heads, clipped gradients."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
num_envs, num_steps, n_minibatches, update_epochs, frame, actions, updates = 256, 64, 2, 3, 84, 6, 3


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(4, 64, 8, stride=4), nn.ReLU(), nn.Conv2d(64, 128, 4, stride=2), nn.ReLU(),
            nn.Conv2d(128, 128, 3, stride=1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(512), nn.ReLU(),
        )
        self.actor, self.critic = nn.Linear(512, actions), nn.Linear(512, 1)

    def get_value(self, x):
        return self.critic(self.network(x / 255.0))

    def get_action_and_value(self, x, action=None):
        hidden = self.network(x / 255.0)
        probs = Categorical(logits=self.actor(hidden))
        action = probs.sample() if action is None else action
        return action, probs.log_prob(action), probs.entropy(), self.critic(hidden)


agent = Agent().to(device)
agent.get_value(torch.zeros(1, 4, frame, frame, device=device))
optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
obs = torch.zeros(num_steps, num_envs, 4, frame, frame, device=device)
taken = torch.zeros(num_steps, num_envs, dtype=torch.long, device=device)
logprobs, rewards, values = (torch.zeros(num_steps, num_envs, device=device) for _ in range(3))
for update in range(updates):
    for step in range(num_steps):
        obs[step] = torch.randint(256, (num_envs, 4, frame, frame), device=device).to(obs.dtype)
        with torch.no_grad():
            action, logprob, _, value = agent.get_action_and_value(obs[step])
        taken[step], logprobs[step], values[step] = action, logprob, value.flatten()
        rewards[step] = torch.rand(num_envs, device=device)
    returns = rewards.flip(0).cumsum(0).flip(0)
    advantages = returns - values
    b_obs, b_taken = obs.reshape(-1, 4, frame, frame), taken.reshape(-1)
    b_logprobs, b_advantages, b_returns = logprobs.reshape(-1), advantages.reshape(-1), returns.reshape(-1)
    size = num_envs * num_steps // n_minibatches
    for epoch in range(update_epochs):
        order = torch.randperm(num_envs * num_steps, device=device)
        for start in range(0, num_envs * num_steps, size):
            mb = order[start : start + size]
            _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb], b_taken[mb])
            ratio = (newlogprob - b_logprobs[mb]).exp()
            mb_advantages = b_advantages[mb]
            mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)
            pg_loss = torch.max(-mb_advantages * ratio, -mb_advantages * ratio.clamp(0.9, 1.1)).mean()
            v_loss = 0.5 * F.mse_loss(newvalue.view(-1), b_returns[mb])
            loss = pg_loss - 0.01 * entropy.mean() + 0.5 * v_loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
