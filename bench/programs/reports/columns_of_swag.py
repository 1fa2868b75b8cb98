"""Averaged weights with 20 columns of deviations, one more each epoch and never more than 20 (understandingbdl#25)."""
import torch
from torch import nn


class SWAG:
    """Mean, mean of squares and the last deviations of each weight (a Gaussian over the weights)."""

    def __init__(self, model, max_columns=20):
        self.model, self.max_columns, self.n = model, max_columns, 0
        self.mean = [torch.zeros_like(p) for p in model.parameters()]
        self.squares = [torch.zeros_like(p) for p in model.parameters()]
        self.columns = [p.new_zeros(0, p.numel()) for p in model.parameters()]

    @torch.no_grad()
    def collect(self):
        for i, p in enumerate(self.model.parameters()):
            self.mean[i].mul_(self.n / (self.n + 1)).add_(p / (self.n + 1))
            self.squares[i].mul_(self.n / (self.n + 1)).add_(p**2 / (self.n + 1))
            deviation = (p - self.mean[i]).view(1, -1)
            self.columns[i] = torch.cat([self.columns[i], deviation])
            if len(self.columns[i]) > self.max_columns:
                self.columns[i] = self.columns[i][1:]
        self.n += 1

    @torch.no_grad()
    def sample(self, scale=0.5):
        for i, p in enumerate(self.model.parameters()):
            spread = (self.squares[i] - self.mean[i] ** 2).clamp(min=1e-30).sqrt() * torch.randn_like(p)
            weights = torch.randn(len(self.columns[i]), device=p.device, dtype=p.dtype)
            low_rank = (weights @ self.columns[i].to(p.device)).view_as(p) / (self.max_columns - 1) ** 0.5
            p.copy_(self.mean[i] + scale**0.5 * (spread + low_rank))


model = nn.Sequential(nn.Linear(40544, 1024), nn.Tanh(), nn.Dropout(0.3), nn.Linear(1024, 1024), nn.Tanh(), nn.Dropout(0.3), nn.Linear(1024, 112)).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
swag = SWAG(model)
for epoch in range(60):
    for step in range(25):
        x, y = torch.randn(64, 40544, device="cuda"), torch.randn(64, 112, device="cuda")
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch >= 10:
        swag.collect()
    print(epoch, loss.item())

with torch.no_grad():
    for _ in range(10):
        swag.sample()
        print(model(torch.randn(64, 40544, device="cuda")).std().item())
