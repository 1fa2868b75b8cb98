"""PPO after CleanRL: pixels of made-up environments, a rollout that stays on the GPU, several epochs of minibatches."""
import numpy as np
import torch
from torch import nn
from torch.distributions.categorical import Categorical

ENVS, STEPS, EPOCHS, MINIBATCHES, UPDATES = 64, 128, 3, 2, 4


def layer(it, std=np.sqrt(2), bias=0.0):
    nn.init.orthogonal_(it.weight, std)
    nn.init.constant_(it.bias, bias)
    return it


class Agent(nn.Module):
    def __init__(self, actions=6):
        super().__init__()
        self.network = nn.Sequential(
            layer(nn.Conv2d(4, 64, 8, stride=4)), nn.ReLU(),
            layer(nn.Conv2d(64, 128, 4, stride=2)), nn.ReLU(),
            layer(nn.Conv2d(128, 128, 3, stride=1)), nn.ReLU(),
            nn.Flatten(), layer(nn.Linear(128 * 7 * 7, 1024)), nn.ReLU(),
        )
        self.actor, self.critic = layer(nn.Linear(1024, actions), 0.01), layer(nn.Linear(1024, 1), 1)

    def value(self, x):
        return self.critic(self.network(x / 255.0))

    def act(self, x, action=None):
        hidden = self.network(x / 255.0)
        probs = Categorical(logits=self.actor(hidden))
        action = probs.sample() if action is None else action
        return action, probs.log_prob(action), probs.entropy(), self.critic(hidden)


class Environments:
    def __init__(self, n):
        self.n, self.rng = n, np.random.default_rng(0)

    def step(self, action=None):
        seen = self.rng.integers(0, 255, (self.n, 4, 84, 84), dtype=np.uint8)
        return seen, self.rng.random(self.n, dtype=np.float32), self.rng.random(self.n) < 0.01


torch.manual_seed(1)
device = torch.device("cuda")
agent, envs = Agent().to(device), Environments(ENVS)
optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
obs = torch.zeros((STEPS, ENVS, 4, 84, 84), device=device)
actions, logprobs, rewards, dones, values = (torch.zeros((STEPS, ENVS), device=device) for _ in range(5))
next_obs = torch.Tensor(envs.step()[0]).to(device)
next_done = torch.zeros(ENVS, device=device)
for update in range(UPDATES):
    optimizer.param_groups[0]["lr"] = (1 - update / UPDATES) * 2.5e-4
    for t in range(STEPS):
        obs[t], dones[t] = next_obs, next_done
        with torch.no_grad():
            action, logprob, _, value = agent.act(next_obs)
            values[t] = value.flatten()
        actions[t], logprobs[t] = action, logprob
        seen, reward, done = envs.step(action.cpu().numpy())
        rewards[t] = torch.tensor(reward, device=device)
        next_obs, next_done = torch.Tensor(seen).to(device), torch.Tensor(done).to(device)
    with torch.no_grad():
        following = agent.value(next_obs).reshape(1, -1)
        advantages, last = torch.zeros_like(rewards), 0
        for t in reversed(range(STEPS)):
            alive = 1.0 - (next_done if t == STEPS - 1 else dones[t + 1])
            after = following if t == STEPS - 1 else values[t + 1]
            delta = rewards[t] + 0.99 * after * alive - values[t]
            advantages[t] = last = delta + 0.99 * 0.95 * alive * last
        returns = advantages + values
    b_obs, b_actions, b_logprobs = obs.reshape(-1, 4, 84, 84), actions.reshape(-1), logprobs.reshape(-1)
    b_advantages, b_returns = advantages.reshape(-1), returns.reshape(-1)
    order = np.arange(ENVS * STEPS)
    for epoch in range(EPOCHS):
        np.random.shuffle(order)
        for start in range(0, len(order), len(order) // MINIBATCHES):
            chosen = order[start : start + len(order) // MINIBATCHES]
            _, logprob, entropy, value = agent.act(b_obs[chosen], b_actions.long()[chosen])
            ratio = (logprob - b_logprobs[chosen]).exp()
            a = b_advantages[chosen]
            a = (a - a.mean()) / (a.std() + 1e-8)
            loss = torch.max(-a * ratio, -a * ratio.clamp(0.9, 1.1)).mean()
            loss = loss - 0.01 * entropy.mean() + 0.25 * ((value.view(-1) - b_returns[chosen]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    print("update", update, "loss", loss.item())
