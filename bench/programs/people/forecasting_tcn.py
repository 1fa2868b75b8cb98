"""A temporal convolutional network with quantile losses over many series, a config class and a fit method of its own."""
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm


@dataclass
class Config:
    series: int = 256
    history: int = 2048
    width: int = 192
    levels: int = 9
    kernel: int = 3
    batch_size: int = 96
    quantiles: tuple = (0.1, 0.5, 0.9)
    epochs: int = 1


class Temporal(nn.Module):
    def __init__(self, cin, cout, kernel, dilation):
        super().__init__()
        self.pad = (kernel - 1) * dilation
        self.a = weight_norm(nn.Conv1d(cin, cout, kernel, padding=self.pad, dilation=dilation))
        self.b = weight_norm(nn.Conv1d(cout, cout, kernel, padding=self.pad, dilation=dilation))
        self.skip = nn.Conv1d(cin, cout, 1) if cin != cout else None

    def forward(self, x):
        h = torch.dropout(torch.relu(self.a(x)[..., : -self.pad]), 0.2, self.training)
        h = torch.dropout(torch.relu(self.b(h)[..., : -self.pad]), 0.2, self.training)
        return torch.relu(h + (x if self.skip is None else self.skip(x)))


class Forecaster:
    def __init__(self, config):
        self.config = config
        layers = [Temporal(config.series if n == 0 else config.width, config.width, config.kernel, 2**n) for n in range(config.levels)]
        self.model = nn.Sequential(*layers, nn.Conv1d(config.width, config.series * len(config.quantiles), 1)).to("cuda")
        self.optimizer = torch.optim.RAdam(self.model.parameters(), lr=2e-3)

    def loss(self, out, y):
        out = out.view(len(y), len(self.config.quantiles), *y.shape[1:])
        total = 0
        for n, q in enumerate(self.config.quantiles):
            e = y - out[:, n]
            total = total + torch.maximum(q * e, (q - 1) * e).mean()
        return total

    def fit(self, data):
        for epoch in range(self.config.epochs):
            for n in range(0, len(data), self.config.batch_size):
                x = data[n : n + self.config.batch_size].to("cuda")
                self.optimizer.zero_grad()
                loss = self.loss(self.model(x[..., :-1]), x[..., 1:])
                loss.backward()
                self.optimizer.step()
            print(epoch, loss.item())


config = Config()
Forecaster(config).fit(torch.randn(30 * config.batch_size, config.series, 256).repeat(1, 1, config.history // 256))
