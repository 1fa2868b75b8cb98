"""The bias goes with its layer: speech is transcribed by an encoder with relative positions: recordings of up to 70 seconds, eight at a time, without gradients."""

import argparse

import torch
from torch import nn

from relative_attention import ForgetfulAttention


class Layer(nn.Module):
    attention = ForgetfulAttention

    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix = self.attention(width, heads)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, x, table):
        x = x + self.mix(self.first(x), table)
        return x + self.feed(self.second(x))


class Encoder(nn.Module):
    def __init__(self, mels, width, heads, depth, words):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv1d(mels, width, 3, 2, 1), nn.SiLU(), nn.Conv1d(width, width, 3, 2, 1), nn.SiLU()
        )
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(depth)])
        self.words = nn.Linear(width, words)
        self.width = width

    def table(self, length, device):
        distance = torch.arange(length - 1, -length, -1.0, device=device)[:, None]
        rate = torch.exp(torch.arange(0, self.width, 2, device=device) * (-9.2 / self.width))
        return torch.cat([(distance * rate).sin(), (distance * rate).cos()], -1)

    def forward(self, spectra):
        x = self.down(spectra).transpose(1, 2)
        table = self.table(x.shape[1], x.device)
        for layer in self.layers:
            x = layer(x, table)
        return self.words(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--depth", type=int, default=18)
    parser.add_argument("--recordings", type=int, default=400)
    args = parser.parse_args()
    encoder = Encoder(80, 512, 8, args.depth, 1024).cuda().eval()
    with torch.inference_mode():
        for begin in range(0, args.recordings, args.batch_size):
            seconds = 50 + begin % 21
            spectra = torch.randn(args.batch_size, 80, seconds * 100).cuda()
            words = encoder(spectra).argmax(-1).cpu()
            print(begin, words.shape[1])


if __name__ == "__main__":
    main()
