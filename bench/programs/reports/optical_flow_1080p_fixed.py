"""Optical flow of one pair of 1080p frames: 8 GB are not enough (RAFT#39)."""
import torch
from torch import nn


class Correlation:
    def __init__(self, one, two, levels=4, radius=4):
        self.radius = radius
        corr = self.all_pairs(one, two)
        b, h, w, _, _ = corr.shape
        self.pyramid = [corr.reshape(b * h * w, 1, h, w)]
        for _ in range(levels - 1):
            self.pyramid.append(nn.functional.avg_pool2d(self.pyramid[-1], 2, 2))

    @staticmethod
    def all_pairs(one, two):
        b, d, h, w = one.shape
        corr = torch.matmul(one.flatten(2).transpose(1, 2), two.flatten(2))
        return corr.view(b, h, w, h, w).mul_(1 / d ** 0.5)

    def __call__(self, coords):
        b, _, h, w = coords.shape
        r = torch.linspace(-self.radius, self.radius, 2 * self.radius + 1, device=coords.device)
        window = torch.stack(torch.meshgrid(r, r, indexing="ij"), -1)[None]
        out = []
        for level, corr in enumerate(self.pyramid):
            at = coords.permute(0, 2, 3, 1).reshape(-1, 1, 1, 2) / 2 ** level + window
            size = torch.tensor([corr.shape[3] - 1, corr.shape[2] - 1], device=at.device)
            out.append(nn.functional.grid_sample(corr, 2 * at / size - 1, align_corners=True).view(b, h, w, -1))
        return torch.cat(out, -1).permute(0, 3, 1, 2)


encoder = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(), nn.Conv2d(128, 256, 3, 2, 1)).cuda().eval()
update = nn.Sequential(nn.Conv2d(4 * 81 + 2, 128, 3, 1, 1), nn.ReLU(), nn.Conv2d(128, 2, 3, 1, 1)).cuda().eval()
with torch.no_grad():
    for pair in range(20):
        one, two = encoder(torch.randn(1, 3, 1088, 1920, device="cuda")), encoder(torch.randn(1, 3, 1088, 1920, device="cuda"))
        corr = Correlation(one, two)
        y, x = torch.meshgrid(torch.arange(136.0, device="cuda"), torch.arange(240.0, device="cuda"), indexing="ij")
        start = torch.stack([x, y])[None]
        coords = start.clone()
        for _ in range(12):
            coords = coords + update(torch.cat([corr(coords), coords - start], 1))
        print(pair, (coords - start).abs().mean().item())
        del corr
