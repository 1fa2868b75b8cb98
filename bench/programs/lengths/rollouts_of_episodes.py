"""Policy gradients over whole episodes: an agent plays until it falls, episodes of 20 to 600 steps are padded into one batch, a transformer sees each."""
import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=200, help="updates")
ap.add_argument("--episodes", type=int, default=24)
ap.add_argument("--eval-episodes", type=int, default=48)
ap.add_argument("--eval-every", type=int, default=50)
ap.add_argument("--longest", type=int, default=600)
ap.add_argument("--epochs", type=int, default=2, help="of each rollout")
ap.add_argument("--dim", type=int, default=320)
ap.add_argument("--layers", type=int, default=6)
ap.add_argument("--device", default="cuda")
a = ap.parse_args()
SEES, ACTIONS = 60, 18


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.eye, self.when = nn.Linear(SEES, a.dim), nn.Embedding(1024, a.dim)
        layer = nn.TransformerEncoderLayer(a.dim, 5, 4 * a.dim, 0.0, activation="gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, a.layers, enable_nested_tensor=False)
        self.act, self.value = nn.Linear(a.dim, ACTIONS), nn.Linear(a.dim, 1)

    def forward(self, seen, empty):
        n = seen.shape[1]
        ahead = torch.ones(n, n, dtype=torch.bool, device=seen.device).triu(1)
        x = self.body(self.eye(seen) + self.when.weight[:n], mask=ahead, src_key_padding_mask=empty)
        return self.act(x), self.value(x).squeeze(-1)


def play(n, gen):
    """Episodes end at random: most soon, a few late."""
    lengths = (20 + (a.longest - 20) * torch.rand(n, generator=gen) ** 3).long()
    most = int(lengths.max())
    seen = torch.randn(n, most, SEES, generator=gen)
    reward = torch.rand(n, most, generator=gen)
    empty = torch.arange(most) >= lengths[:, None]
    return seen, reward.masked_fill(empty, 0), empty


def returns_of(reward, gamma=0.99):
    out, running = torch.zeros_like(reward), torch.zeros(len(reward), device=reward.device)
    for t in range(reward.shape[1] - 1, -1, -1):
        running = reward[:, t] + gamma * running
        out[:, t] = running
    return out


torch.manual_seed(0)
gen = torch.Generator().manual_seed(11)
policy = Policy().to(a.device)
optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-4)
for step in range(1, a.steps + 1):
    seen, reward, empty = play(a.episodes, gen)
    returns = returns_of(reward).to(a.device)
    seen, empty = seen.to(a.device), empty.to(a.device)
    with torch.no_grad():
        logits, _ = policy(seen, empty)
        actions = torch.distributions.Categorical(logits=logits.float()).sample()
        before = logits.float().log_softmax(-1).gather(-1, actions[..., None]).squeeze(-1)
    for _ in range(a.epochs):
        logits, value = policy(seen, empty)
        told = logits.log_softmax(-1)
        ratio = (told.gather(-1, actions[..., None]).squeeze(-1) - before).exp()
        advantage = (returns - value).detach()
        gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        entropy = -(told.exp() * told).sum(-1)
        keep = ~empty
        loss = (-gain[keep].mean() + 0.5 * F.mse_loss(value[keep], returns[keep]) - 0.01 * entropy[keep].mean())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()
    if step % a.eval_every == 0:
        policy.eval()
        with torch.inference_mode():
            seen, reward, empty = play(a.eval_episodes, torch.Generator().manual_seed(5))
            logits, value = policy(seen.to(a.device), empty.to(a.device))
            sure = logits.softmax(-1).amax(-1)[~empty.to(a.device)].mean().item()
        policy.train()
        print(f"update {step} loss {loss.item():.3f} sure {sure:.3f}")
print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))
