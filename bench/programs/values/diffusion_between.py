"""Diffusion with an average of weights; conditions dropped at random; between epochs a larger batch is sampled with guidance, early steps skipped for some."""
import copy, os
import torch
from torch import nn
import torch.nn.functional as F

device = os.environ.get("DEVICE", "cuda")
torch.manual_seed(6)


class Net(nn.Module):
    def __init__(self, c=96):
        super().__init__()
        self.start, self.time, self.label = nn.Conv2d(3, c, 3, 1, 1), nn.Sequential(nn.Linear(64, c), nn.SiLU(), nn.Linear(c, c)), nn.Embedding(11, c)
        self.down, self.up = nn.Conv2d(c, 2 * c, 3, 2, 1), nn.ConvTranspose2d(2 * c, c, 4, 2, 1)
        self.mid = nn.ModuleList(nn.Sequential(nn.GroupNorm(8, 2 * c), nn.SiLU(), nn.Conv2d(2 * c, 2 * c, 3, 1, 1)) for _ in range(4))
        self.end = nn.Sequential(nn.GroupNorm(8, 2 * c), nn.SiLU(), nn.Conv2d(2 * c, 3, 3, 1, 1))

    def forward(self, x, t, y):
        w = t[:, None].float() * torch.exp(-torch.arange(32, device=x.device) / 4)
        h = self.start(x) + (self.time(torch.cat([w.sin(), w.cos()], 1)) + self.label(y))[:, :, None, None]
        m = self.down(h)
        for it in self.mid:
            m = m + it(m)
        return self.end(torch.cat([h, self.up(m)], 1))


net = Net().to(device)
average = copy.deepcopy(net).requires_grad_(False)
optimizer = torch.optim.AdamW(net.parameters(), 2e-4)
alpha = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 200), 0).to(device)
for epoch in range(3):
    for step in range(4):
        x, y = torch.randn(24, 3, 64, 64).to(device), torch.randint(0, 10, (24,)).to(device)
        t = torch.randint(0, 200, (24,), device=device)
        y = torch.where(torch.rand(24, device=device) < 0.1, 10, y)
        noise = torch.randn_like(x)
        noisy = alpha[t].sqrt()[:, None, None, None] * x + (1 - alpha[t]).sqrt()[:, None, None, None] * noise
        # Hard times are learned twice as often: rows with late times again.
        late = t >= 150
        noisy, noise, t, y = (torch.cat([it, it[late]]) for it in (noisy, noise, t, y))
        weight = torch.clamp(alpha[t] / (1 - alpha[t]), max=5.0)
        loss = (weight[:, None, None, None] * (net(noisy, t, y) - noise) ** 2).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            for a, b in zip(average.parameters(), net.parameters()):
                a.lerp_(b, 0.01)
        print("sizes", epoch, step, len(t))
    with torch.no_grad():
        x, y = torch.randn(80, 3, 64, 64, device=device), torch.arange(80, device=device) % 10
        begins = torch.randint(100, 200, (80,), device=device)
        for now in range(199, -1, -20):
            on = begins >= now
            part = x[on]
            if not len(part):
                continue
            t = torch.full((len(part),), now, device=device)
            guess = average(torch.cat([part, part]), torch.cat([t, t]), torch.cat([y[on], torch.full_like(y[on], 10)]))
            with_, without = guess.chunk(2)
            guess = without + 3 * (with_ - without)
            x[on] = (part - (1 - alpha[now]).sqrt() * guess) / alpha[now].sqrt()
        print("sizes", epoch, "sampled", tuple(x.shape))
