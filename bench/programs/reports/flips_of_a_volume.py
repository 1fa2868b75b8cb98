"""Test-time augmentation of volumes: the predictions for eight flips are collected, and their mean is taken."""
from itertools import combinations

import torch
from torch import nn

net = nn.Sequential(nn.Conv3d(1, 16, 3, padding=1), nn.ReLU(inplace=True), nn.Conv3d(16, 105, 1)).cuda().eval()
flips = [axes for count in range(4) for axes in combinations((2, 3, 4), count)]
with torch.no_grad():
    for case in range(20):
        volume = torch.randn(1, 1, 128, 128, 128).cuda()
        results = []
        for axes in flips:
            scores = net(torch.flip(volume, axes)).softmax(1)
            results.append(torch.flip(scores, axes))
        mean = torch.stack(results).mean(0)
        labels = mean.argmax(1).cpu()
