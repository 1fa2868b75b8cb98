"""Predictions at full size: the scores of each picture live while the next is computed."""
import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 150, 1)).cuda().eval()
found = []
with torch.inference_mode():
    for i in range(20):
        scores = net(torch.randn(1, 3, 1024, 1024, device="cuda"))
        found.append(scores.argmax(1).byte().cpu())
