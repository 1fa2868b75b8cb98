"""The first noise is learned through 20 steps of a frozen model: how is this to fit? (SeedSelect#3)"""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Noise(nn.Module):
    def __init__(self, width=64, depth=14):
        super().__init__()
        self.first = nn.Conv2d(4, width, 3, 1, 1)
        self.blocks = nn.ModuleList([nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, 1, 1)) for _ in range(depth)])
        self.last = nn.Conv2d(width, 4, 3, 1, 1)

    def forward(self, x, t):
        x = self.first(x) + t
        for block in self.blocks:
            x = x + block(x)
        return self.last(x)


def sample(model, x, steps=20):
    for t in torch.linspace(1, 0, steps).tolist():
        x = x - checkpoint(model, x, t, use_reentrant=False) / steps
    return x


model = Noise().cuda().eval().requires_grad_(False)
judge = nn.Sequential(nn.Conv2d(4, 64, 8, 8), nn.ReLU(), nn.Conv2d(64, 128, 4, 4), nn.Flatten(), nn.Linear(128 * 64, 256)).cuda().requires_grad_(False)
wanted = torch.randn(1, 256, device="cuda")
seed = torch.randn(1, 4, 256, 256, device="cuda").requires_grad_()
optimizer = torch.optim.Adam([seed], 0.01)
for step in range(200):
    made = sample(model, seed)
    loss = 1 - nn.functional.cosine_similarity(judge(made), wanted).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
