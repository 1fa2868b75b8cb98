"""The same; the hidden states are let go before the next forward pass."""
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, width=1024, layers=24):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(inplace=True)) for _ in range(layers))

    def forward(self, x):
        hidden = []
        for layer in self.layers:
            x = x + layer(x)
            hidden.append(x)
        return hidden


model = Encoder().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(500):
    x = torch.randn(32, 1024, 1024).cuda()
    hidden = model(x)
    loss = hidden[-1].square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    del hidden, x
    if step % 50 == 0:
        print(step, loss.item())
