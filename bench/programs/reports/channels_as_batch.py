"""Forecasts of 862 road sensors with a transformer over patches: each sensor is a sequence of its own (PatchTST#137)."""
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width=128, heads=16, dropout=0.2):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, previous=None):
        b, n, w = x.shape
        q, k, v = (f(x).view(b, n, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = q @ k.transpose(-2, -1) * (w // self.heads) ** -0.5
        if previous is not None:
            scores = scores + previous
        weights = self.dropout(scores.softmax(-1))
        return self.out((weights @ v).transpose(1, 2).reshape(b, n, w)), scores


class Layer(nn.Module):
    def __init__(self, width=128, inner=256):
        super().__init__()
        self.attention = Attention(width)
        self.norm1, self.norm2 = nn.BatchNorm1d(width), nn.BatchNorm1d(width)
        self.feed = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Dropout(0.2), nn.Linear(inner, width))

    def forward(self, x, previous):
        y, scores = self.attention(x, previous)
        x = self.norm1((x + y).transpose(1, 2)).transpose(1, 2)
        return self.norm2((x + self.feed(x)).transpose(1, 2)).transpose(1, 2), scores


class PatchModel(nn.Module):
    def __init__(self, length=336, patch=16, stride=8, width=128, ahead=96):
        super().__init__()
        self.patch, self.stride = patch, stride
        patches = (length - patch) // stride + 2
        self.embed = nn.Linear(patch, width)
        self.position = nn.Parameter(torch.zeros(patches, width))
        self.layers = nn.ModuleList(Layer(width) for _ in range(3))
        self.head = nn.Linear(patches * width, ahead)

    def forward(self, x):
        b, length, channels = x.shape
        x = nn.functional.pad(x.transpose(1, 2), (0, self.stride), mode="replicate")
        patches = x.unfold(-1, self.patch, self.stride)
        z = self.embed(patches).flatten(0, 1) + self.position
        scores = None
        for layer in self.layers:
            z, scores = layer(z, scores)
        return self.head(z.flatten(1)).view(b, channels, -1).transpose(1, 2)


BATCH = 32
model = PatchModel().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for epoch in range(100):
    for step in range(12000 // BATCH):
        series = torch.randn(BATCH, 432, 862, device="cuda")
        forecast = model(series[:, :336])
        loss = nn.functional.mse_loss(forecast, series[:, 336:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
