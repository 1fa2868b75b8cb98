"""cause: leak/graph-retained at line 60
also right: line 61
also right: line 19
memory: 2GiB
why: a history object keeps the loss of each step for a plot, and the pass that drew a sample of it: both with their graphs.
"""
import torch
import torch.nn.functional as F
from torch import nn


class History:
    """Collects what a run measures and averages it at the end."""

    def __init__(self):
        self.records = []

    def log(self, **values):
        self.records.append(values)

    def mean(self, name):
        return sum(float(it[name]) for it in self.records) / len(self.records)


class Denoiser(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1)) for _ in range(4)
        )
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, t):
        h = self.first(x) + self.time(t[:, None])[:, :, None, None]
        for block in self.blocks:
            h = h + block(h)
        return self.last(h)


device = "cuda"
model = Denoiser().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
betas = torch.linspace(1e-4, 0.02, 1000, device=device)
alphas = torch.cumprod(1 - betas, 0)
history = History()

for step in range(300):
    x0 = torch.rand(16, 3, 32, 32, device=device) * 2 - 1
    t = torch.randint(0, 1000, (16,), device=device)
    noise = torch.randn_like(x0)
    a = alphas[t][:, None, None, None]
    xt = a.sqrt() * x0 + (1 - a).sqrt() * noise
    predicted = model(xt, t / 1000)
    mse = F.mse_loss(predicted, noise)
    optimizer.zero_grad()
    mse.backward()
    optimizer.step()
    again = F.mse_loss(model(xt, t / 1000), noise)  # here
    history.log(loss=mse, after=again)
print(history.mean("loss"), history.mean("after"))
