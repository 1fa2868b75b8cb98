"""Voices out of a collection of recordings, each in one piece."""
import argparse

import torch
from torch import nn

RATE = 44100
MINUTES = [4, 3, 5, 4, 4, 3, 6, 4, 5, 3, 4, 4, 3, 5, 4, 3, 4, 5, 6, 4, 3, 4, 4, 5, 3, 4, 4, 6, 3, 72, 4, 4, 5, 3]


class Down(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.conv, self.mix = nn.Conv1d(inside, outside, 8, 4, padding=2), nn.Conv1d(outside, 2 * outside, 1)

    def forward(self, x):
        return nn.functional.glu(self.mix(torch.relu(self.conv(x))), dim=1)


class Up(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.mix, self.conv = nn.Conv1d(inside, 2 * inside, 1), nn.ConvTranspose1d(inside, outside, 8, 4, padding=2)

    def forward(self, x, skip):
        return self.conv(nn.functional.glu(self.mix(x + skip), dim=1))


class Separator(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.down = nn.ModuleList([Down(2, width), Down(width, 2 * width), Down(2 * width, 4 * width)])
        self.up = nn.ModuleList([Up(4 * width, 2 * width), Up(2 * width, width), Up(width, 4)])

    def forward(self, x):
        skips = []
        for layer in self.down:
            x = layer(x)
            skips.append(x)
        for layer in self.up:
            x = layer(x, skips.pop())
        return x


def recording(minutes):
    samples = minutes * 60 * RATE // 64 * 64
    return torch.zeros(2, 1).expand(2, samples)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--collection", type=int, nargs="*", default=MINUTES)
    args = parser.parse_args()
    model = Separator().cuda().eval()
    for number, minutes in enumerate(args.collection):
        mix = recording(minutes)
        with torch.no_grad():
            voices = model(mix[None].cuda())[0].cpu()
        print(f"{number}: {minutes} minutes, {tuple(voices.shape)}", flush=True)


if __name__ == "__main__":
    main()
