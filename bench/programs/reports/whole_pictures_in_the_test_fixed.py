"""Tiles in the test: pictures are made four times as large: a network of windows, trained on crops of 64 pixels; then the test with whole pictures."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    """Pairs of a small picture and the large one that it was made from: crops for the training, whole for the test."""

    def __init__(self, n, crop=None):
        self.n, self.crop = n, crop

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        height, width = (self.crop, self.crop) if self.crop else (1020, 1356)
        return torch.rand(3, height, width), torch.rand(3, 4 * height, 4 * width)


class Block(nn.Module):
    def __init__(self, width, heads, window=8):
        super().__init__()
        self.window, self.heads = window, heads
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def attend(self, x):
        n, height, width, channels = x.shape
        w = self.window
        x = x.view(n, height // w, w, width // w, w, channels).permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, channels)
        q, k, v = self.qkv(x).view(-1, w * w, 3, self.heads, channels // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) / (channels // self.heads) ** 0.5).softmax(-1)
        x = self.out((weights @ v).transpose(1, 2).reshape(-1, w * w, channels))
        x = x.view(n, height // w, width // w, w, w, channels).permute(0, 1, 3, 2, 4, 5)
        return x.reshape(n, height, width, channels)

    def forward(self, x):
        x = x + self.attend(self.one(x))
        return x + self.feed(self.two(x))


class Enlarger(nn.Module):
    def __init__(self, width=96, depth=8, heads=6):
        super().__init__()
        self.into = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.up = nn.Sequential(nn.Conv2d(width, 16 * 64, 3, padding=1), nn.PixelShuffle(4), nn.LeakyReLU(), nn.Conv2d(64, 3, 3, padding=1))

    def forward(self, x):
        height, width = x.shape[-2:]
        x = nn.functional.pad(x, (0, -width % 8, 0, -height % 8), mode="reflect")
        x = self.into(x)
        x = x + self.blocks(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.up(x)[..., : 4 * height, : 4 * width]


def train(model, args):
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    loader = DataLoader(Pictures(args.batch_size * 300, 64), args.batch_size)
    for epoch in range(args.epochs):
        for small, large in loader:
            loss = nn.functional.l1_loss(model(small.cuda()), large.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


@torch.no_grad()
def enlarge(model, small):
    tiles = [
        [model(small[..., y : y + 256, x : x + 256]) for x in range(0, small.shape[-1], 256)]
        for y in range(0, small.shape[-2], 256)
    ]
    return torch.cat([torch.cat(row, -1) for row in tiles], -2)


def test(model):
    model.eval()
    total = 0.0
    for small, large in DataLoader(Pictures(10)):
        made = enlarge(model, small.cuda()).clamp(0, 1)
        total += -10 * (made - large.cuda()).pow(2).mean().log10().item()
    print("PSNR", total / 10)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    model = Enlarger().cuda()
    train(model, args)
    test(model)


if __name__ == "__main__":
    main()
