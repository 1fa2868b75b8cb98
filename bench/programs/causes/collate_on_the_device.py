"""cause: inputs/all-on-device at line 22
also right: growth/per-step
also right: leak/results-kept
memory: 2GiB
why: the collate function moves batches to the device, and the queue that it fills ahead of training has no bound.
"""
import collections

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        return torch.zeros(3, 224, 224), index % 10

def collate(items):
    return torch.stack([it[0] for it in items]).cuda(), torch.tensor([it[1] for it in items]).cuda()  # here


net = nn.Sequential(nn.Conv2d(3, 16, 7, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
queue = collections.deque()
source = iter(DataLoader(Pictures(), batch_size=32, collate_fn=collate))
for step in range(128):
    # Ahead by as many as the loader has.
    for _ in range(4):
        item = next(source, None)
        if item is not None:
            queue.append(item)
    x, y = queue.popleft()
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
