"""cause: growth/per-step at line 20
also right: inputs/all-on-device
also right: leak/results-kept
memory: 2GiB
why: the data set keeps on the device what it has given, so that the second epoch is faster.
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Remembering(Dataset):
    def __init__(self, n):
        self.n, self.seen = n, {}

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.seen.setdefault(i, torch.randn(3, 256, 256).cuda())  # here


net = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for images in DataLoader(Remembering(4096), batch_size=32):
        loss = net(images).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
