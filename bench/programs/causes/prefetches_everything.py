"""cause: inputs/all-on-device at line 17
also right: growth/per-step
also right: line 18
memory: 1536MiB
why: a "prefetcher" moves each batch of the epoch to the device before the first one is used.
"""
import torch
from torch import nn


class Prefetcher:
    def __init__(self, loader):
        self.batches = []
        for images, labels in loader:
            self.batches.append(
                (
                    images.to("cuda", non_blocking=True),
                    labels.to("cuda", non_blocking=True),
                )
            )

    def __iter__(self):
        return iter(self.batches)


data = torch.utils.data.TensorDataset(torch.zeros(40000, 3, 64, 64, dtype=torch.float16), torch.zeros(40000, dtype=torch.long))
loader = torch.utils.data.DataLoader(data, batch_size=500)
net = nn.Sequential(nn.Conv2d(3, 32, 3, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for images, labels in Prefetcher(loader):
        loss = nn.functional.cross_entropy(net(images.float()), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
