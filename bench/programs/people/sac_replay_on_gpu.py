"""Soft actor-critic from pixels: the replay buffer lies on the GPU, two critics, an encoder that is shared, random shifts."""
import torch
import torch.nn as nn
import torch.nn.functional as F

DEV = "cuda"


class Replay:
    def __init__(self, size, shape, actions):
        self.obs = torch.zeros(size, *shape, dtype=torch.uint8, device=DEV)
        self.nxt = torch.zeros(size, *shape, dtype=torch.uint8, device=DEV)
        self.act = torch.zeros(size, actions, device=DEV)
        self.rew = torch.zeros(size, 1, device=DEV)
        self.at, self.size, self.full = 0, size, False

    def add(self, o, a, r, n):
        self.obs[self.at], self.act[self.at], self.rew[self.at], self.nxt[self.at] = o, a, r, n
        self.at = (self.at + 1) % self.size

    def sample(self, count):
        i = torch.randint(0, max(self.at, 1), (count,), device=DEV)
        return self.obs[i].float() / 255, self.act[i], self.rew[i], self.nxt[i].float() / 255


class Encoder(nn.Module):
    def __init__(self, c=9, f=50):
        super().__init__()
        self.convs = nn.Sequential(nn.Conv2d(c, 32, 3, stride=2), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU())
        self.fc, self.ln = nn.Linear(32 * 35 * 35, f), nn.LayerNorm(f)

    def forward(self, x):
        return torch.tanh(self.ln(self.fc(self.convs(x).flatten(1))))


def shift(x, pad=4):
    n, _, h, w = x.shape
    x = F.pad(x, (pad,) * 4, "replicate")
    a, b = torch.randint(0, 2 * pad + 1, (2,)).tolist()
    return x[:, :, a : a + h, b : b + w]


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, o))


torch.manual_seed(0)
A = 6
replay = Replay(60_000, (9, 84, 84), A)
enc, enc_t = Encoder().to(DEV), Encoder().to(DEV)
actor, q1, q2, t1, t2 = (it.to(DEV) for it in (mlp(50, 2 * A), mlp(50 + A, 1), mlp(50 + A, 1), mlp(50 + A, 1), mlp(50 + A, 1)))
opt_q = torch.optim.Adam([*enc.parameters(), *q1.parameters(), *q2.parameters()], 1e-4)
opt_a = torch.optim.Adam(actor.parameters(), 1e-4)
for step in range(120):
    frame = torch.randint(0, 256, (9, 84, 84), dtype=torch.uint8)
    replay.add(frame, torch.rand(A) * 2 - 1, torch.rand(1), frame.flip(0))
    if step < 20:
        continue
    o, a, r, n = replay.sample(512)
    o, n = shift(o), shift(n)
    with torch.no_grad():
        mean, log_std = actor(enc(n)).chunk(2, -1)
        na = torch.tanh(mean + log_std.clamp(-5, 2).exp() * torch.randn_like(mean))
        hn = enc_t(n)
        target = r + 0.99 * torch.min(t1(torch.cat([hn, na], -1)), t2(torch.cat([hn, na], -1)))
    h = enc(o)
    loss = F.mse_loss(q1(torch.cat([h, a], -1)), target) + F.mse_loss(q2(torch.cat([h, a], -1)), target)
    opt_q.zero_grad()
    loss.backward()
    opt_q.step()
    h = h.detach()
    mean, log_std = actor(h).chunk(2, -1)
    pi = torch.tanh(mean + log_std.clamp(-5, 2).exp() * torch.randn_like(mean))
    loss_a = -torch.min(q1(torch.cat([h, pi], -1)), q2(torch.cat([h, pi], -1))).mean()
    opt_a.zero_grad()
    loss_a.backward()
    opt_a.step()
    with torch.no_grad():
        for net, slow in ((enc, enc_t), (q1, t1), (q2, t2)):
            for p, s in zip(net.parameters(), slow.parameters()):
                s.lerp_(p, 0.01)
