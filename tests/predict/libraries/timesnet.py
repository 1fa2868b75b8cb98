"""TimesNet's block: the periods of a series are the top-k of its amplitudes, and a series is folded by each."""

import torch
from torch import nn
from torch.nn import functional as F


def periods(x, k):
    amplitude = torch.fft.rfft(x, dim=1).abs()
    frequencies = amplitude.mean(0).mean(-1)
    frequencies[0] = 0
    _, top = torch.topk(frequencies, k)
    top = top.detach().cpu().numpy()
    return x.shape[1] // top, amplitude.mean(-1)[:, top]


class TimesBlock(nn.Module):
    def __init__(self, width, k=3):
        super().__init__()
        self.k, self.conv = k, nn.Sequential(nn.Conv2d(width, 2 * width, 3, padding=1), nn.GELU(), nn.Conv2d(2 * width, width, 3, padding=1))

    def forward(self, x):
        batch, length, width = x.shape
        found, weight = periods(x, self.k)
        results = []
        for period in found:
            whole = -(-length // period) * period
            folded = F.pad(x, (0, 0, 0, whole - length)).reshape(batch, whole // period, period, width).permute(0, 3, 1, 2).contiguous()
            results.append(self.conv(folded).permute(0, 2, 3, 1).reshape(batch, -1, width)[:, :length])
        weight = F.softmax(weight, 1)[:, None, None].repeat(1, length, width, 1)
        return (torch.stack(results, -1) * weight).sum(-1) + x


model = nn.Sequential(nn.Linear(7, 32), TimesBlock(32), TimesBlock(32), nn.Linear(32, 7)).cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(4):
    x = torch.randn(16, 96, 7, device="cuda")
    F.mse_loss(model(x), x).backward()
    optimizer.step()
    optimizer.zero_grad()
