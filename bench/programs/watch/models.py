"""The models and batches of the bench: small, so that a step takes a few milliseconds."""

import torch
import torch.nn.functional as F
from torch import nn


def rows(n, width=256):
    return torch.randn(n, width, device="cuda")


def tokens(batch, length, vocabulary=512):
    return torch.randint(0, vocabulary, (batch, length), device="cuda")


def images(batch, size):
    return torch.randn(batch, 3, size, size, device="cuda")


class Mlp(nn.Module):
    def __init__(self, width=256, depth=4, out=None):
        super().__init__()
        layers = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.ReLU())]
        self.layers = nn.Sequential(*layers, nn.Linear(width, out or width))

    def forward(self, x):
        return self.layers(x)


class Gpt(nn.Module):
    def __init__(self, width=128, depth=2, vocabulary=512):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, dropout=0.0)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x):
        return self.head(self.blocks(self.embed(x)))

    def loss(self, x):
        logits = self(x)
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), x[:, 1:].flatten())


class Rnn(nn.Module):
    def __init__(self, width=64, hidden=128):
        super().__init__()
        self.rnn = nn.LSTM(width, hidden)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.head(self.rnn(x)[0]).square().mean()


def conv_net(channels=16, classes=10):
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
        nn.Conv2d(channels, channels, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes),
    )
