"""The same with the weights computed once for a sequence."""
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

WIDTH, STEPS, BATCH = 2048, 200, 32


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.given = weight_norm(nn.Linear(256, WIDTH))
        self.state = weight_norm(nn.Linear(WIDTH, WIDTH))

    def forward(self, x, h):
        return torch.tanh(self.given(x) + self.state(h))


cell, head = Cell().cuda(), nn.Linear(WIDTH, 10).cuda()
optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()])
for step in range(500):
    x = torch.randn(STEPS, BATCH, 256).cuda()
    h = torch.zeros(BATCH, WIDTH, device="cuda")
    with parametrize.cached():
        for given in x:
            h = cell(given, h)
    loss = head(h).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
