"""PPO with environments on the GPU: episodes end at random, values are bootstrapped there, minibatches by randperm."""
import torch
from torch import nn
torch.manual_seed(0)
N, T, O, A = 2048, 32, 96, 12
pi = nn.Sequential(nn.Linear(O, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, A)).cuda()
vf = nn.Sequential(nn.Linear(O, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 1)).cuda()
opt = torch.optim.Adam([*pi.parameters(), *vf.parameters()], 3e-4)
obs = torch.randn(N, O, device="cuda"); length = torch.zeros(N, device="cuda", dtype=torch.long)
finished = []
for update in range(3):
    buf = {k: [] for k in ("o", "a", "lp", "r", "d", "v")}
    for t in range(T):
        with torch.no_grad():
            dist = torch.distributions.Categorical(logits=pi(obs)); a = dist.sample(); lp = dist.log_prob(a); v = vf(obs).squeeze(1)
        nxt = obs + 0.1 * torch.randn_like(obs); r = torch.randn(N, device="cuda")
        length += 1
        done = (torch.rand(N, device="cuda") < 0.05) | (length >= 24)
        ids = done.nonzero(as_tuple=False).flatten()
        if len(ids) > 0:
            finished.append(length[ids].float().mean())
            nxt[ids] = torch.randn(len(ids), O, device="cuda"); length[ids] = 0
        for k, x in zip(buf, (obs, a, lp, r, done, v)): buf[k].append(x)
        obs = nxt
    o, a, lp, r, d, v = (torch.stack(x) for x in buf.values())
    adv = torch.zeros_like(r); last = 0
    for t in reversed(range(T)):
        nv = v[t + 1] if t + 1 < T else vf(obs).squeeze(1).detach()
        delta = r[t] + 0.99 * nv * (~d[t]) - v[t]; last = delta + 0.95 * 0.99 * (~d[t]) * last; adv[t] = last
    ret = adv + v
    flat = [x.reshape(N * T, *x.shape[2:]) for x in (o, a, lp, adv, ret)]
    for epoch in range(2):
        for mb in torch.randperm(N * T, device="cuda").split(16384):
            fo, fa, fl, fadv, fr = (x[mb] for x in flat)
            dist = torch.distributions.Categorical(logits=pi(fo)); ratio = (dist.log_prob(fa) - fl).exp()
            loss = -torch.min(ratio * fadv, ratio.clamp(0.8, 1.2) * fadv).mean() + 0.5 * (vf(fo).squeeze(1) - fr).pow(2).mean() - 0.01 * dist.entropy().mean()
            opt.zero_grad(); loss.backward(); opt.step()
            if ((dist.log_prob(fa) - fl).mean().abs() > 0.5): break
print(len(finished), loss.item())
