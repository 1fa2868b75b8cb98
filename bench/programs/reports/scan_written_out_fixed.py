"""A state space model (Mamba) in plain PyTorch: the states of all positions are made at once, each 16 times as wide as the input."""
import torch
import torch.utils.checkpoint
from torch import nn

WIDTH, STATE = 1024, 16


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside, self.step, self.b, self.c, self.outside = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, STATE), nn.Linear(WIDTH, STATE), nn.Linear(WIDTH, WIDTH)
        self.a = nn.Parameter(torch.zeros(WIDTH, STATE))

    def forward(self, x):
        u, delta = self.inside(x), nn.functional.softplus(self.step(x))
        decay = torch.exp(delta[..., None] * -self.a.exp())
        entry = (delta * u)[..., None] * self.b(x)[:, :, None]
        states = entry.cumsum(1) / (decay + 1).cumprod(1)
        return x + self.outside((states * self.c(x)[:, :, None]).sum(-1))


model = nn.Sequential(*[Layer() for _ in range(6)]).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(500):
    x = torch.randn(2, 2048, WIDTH, device="cuda")
    loss = torch.utils.checkpoint.checkpoint_sequential(model, 6, x, use_reentrant=False).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
