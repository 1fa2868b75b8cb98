"""Decodes latents to pictures of 768 x 768 with the decoder of an autoencoder, with gradients on."""
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, given, made):
        super().__init__()
        self.first, self.second = nn.Conv2d(given, made, 3, padding=1), nn.Conv2d(made, made, 3, padding=1)
        self.norms = nn.ModuleList([nn.GroupNorm(32, given), nn.GroupNorm(32, made)])
        self.skip = nn.Conv2d(given, made, 1) if given != made else nn.Identity()

    def forward(self, x):
        y = self.first(F.silu(self.norms[0](x)))
        return self.skip(x) + self.second(F.silu(self.norms[1](y)))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.begin = nn.Conv2d(4, 512, 3, padding=1)
        widths = [512, 512, 256, 128]
        self.blocks = nn.ModuleList()
        given = 512
        for made in widths:
            self.blocks.append(nn.Sequential(Block(given, made), Block(made, made), Block(made, made)))
            given = made
        self.end = nn.Conv2d(128, 3, 3, padding=1)

    def forward(self, z):
        x = self.begin(z)
        for at, blocks in enumerate(self.blocks):
            x = blocks(x)
            if at < 3:
                x = F.interpolate(x, scale_factor=2)
        return self.end(x)


decoder = Decoder().half().cuda().eval()
latents = torch.randn(100, 4, 4, 96, 96)
for at, z in enumerate(latents):
    pictures = decoder(z.half().cuda())
    torch.save(pictures.cpu(), f"/tmp/pictures-{at}.pt")
