"""Adaptive computation: a cell is applied until every position has halted; training ends early when the validation stops to improve."""
import torch
from torch import nn
from torch.nn import functional as F


class Ponder(nn.Module):
    def __init__(self, width, most=12):
        super().__init__()
        self.cell = nn.GRUCell(width, width)
        self.halt = nn.Linear(width, 1)
        self.most = most

    def forward(self, x):
        state = torch.zeros_like(x)
        halted = torch.zeros(len(x), device=x.device)
        result, steps = torch.zeros_like(x), 0
        while (halted < 0.99).any() and steps < self.most:
            state = self.cell(x, state)
            p = torch.sigmoid(self.halt(state)).squeeze(-1)
            running = (halted < 0.99).float()
            p = torch.where(halted + p * running >= 0.99, 1 - halted, p) * running
            halted = halted + p
            result = result + p[:, None] * state
            steps += 1
        return result, steps


model = nn.Sequential(nn.Linear(64, 256)).cuda()
ponder, head = Ponder(256).cuda(), nn.Linear(256, 10).cuda()
optimizer = torch.optim.Adam([*model.parameters(), *ponder.parameters(), *head.parameters()], 1e-3)
best, bad = float("inf"), 0
for epoch in range(20):
    for _ in range(5):
        x, y = torch.randn(512, 64).cuda(), torch.randint(0, 10, (512,)).cuda()
        h, steps = ponder(model(x))
        loss = F.cross_entropy(head(h), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        val = F.cross_entropy(head(ponder(model(torch.randn(512, 64).cuda()))[0]), torch.randint(0, 10, (512,)).cuda()).item()
    print(epoch, steps, val)
    if val < best:
        best, bad = val, 0
    else:
        bad += 1
        if bad == 3:
            break
