"""A model of long sequences whose filters are as long as the sequence, applied by Fourier transforms, as in Hyena."""

import argparse

import torch
from torch import nn


def long_convolution(u, filters, bias):
    length = u.shape[-1]
    of_filters = torch.fft.rfft(filters, n=2 * length) / (2 * length)
    of_u = torch.fft.rfft(u, n=2 * length)
    y = torch.fft.irfft(of_u * of_filters, n=2 * length, norm="forward")[..., :length]
    return y + u * bias[:, None]


class Filter(nn.Module):
    def __init__(self, width, order, longest):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, width * order))
        t = torch.linspace(0, 1, longest)[:, None]
        self.register_buffer("t", torch.cat([t, (6.28 * t).sin(), (6.28 * t).cos()], 1))
        self.bias = nn.Parameter(torch.randn(order, width))
        self.order, self.width = order, width

    def forward(self, length):
        filters = self.net(self.t[:length]) * torch.exp(-4.0 * self.t[:length, :1])
        return filters.view(length, self.order, self.width).permute(1, 2, 0)


class Operator(nn.Module):
    def __init__(self, width, order, longest):
        super().__init__()
        self.order = order
        self.into, self.out = nn.Linear(width, (order + 1) * width), nn.Linear(width, width)
        self.short = nn.Conv1d((order + 1) * width, (order + 1) * width, 3, padding=2, groups=(order + 1) * width)
        self.filter = Filter(width, order, longest)

    def forward(self, x):
        length = x.shape[1]
        *gates, v = self.short(self.into(x).transpose(1, 2))[..., :length].chunk(self.order + 1, 1)
        for gate, filters, bias in zip(gates, self.filter(length), self.filter.bias):
            v = gate * long_convolution(v, filters, bias)
        return self.out(v.transpose(1, 2))


class Model(nn.Module):
    def __init__(self, words, width, depth, order, longest):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList([Operator(width, order, longest) for _ in range(depth)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(depth)])
        self.head = nn.Linear(width, words)

    def forward(self, ids):
        x = self.embed(ids)
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x))
        return self.head(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--length", type=int, default=32_768)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--steps", type=int, default=500)
    args = parser.parse_args()
    model = Model(16, args.width, args.depth, 2, args.length).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4)
    for step in range(args.steps):
        bases = torch.randint(16, (args.batch_size, args.length + 1)).cuda()
        loss = nn.functional.cross_entropy(model(bases[:, :-1]).flatten(0, 1), bases[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
