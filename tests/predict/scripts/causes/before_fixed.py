"""A network that returns all its hidden states: those of each step live until the next."""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width=1024, depth=12):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        hidden = []
        for layer in self.layers:
            x = torch.tanh(layer(x))
            hidden.append(x)
        return x.pow(2).mean(), hidden


model = Model().cuda()
opt = torch.optim.SGD(model.parameters(), 0.1)
for step in range(100):
    loss, hidden = model(torch.randn(16384, 1024, device="cuda"))
    opt.zero_grad()
    loss.backward()
    opt.step()
    del loss, hidden
