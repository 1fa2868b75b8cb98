"""cause: size/one-allocation at line 20
also right: line 22
memory: 5GiB
why: labels of a segmentation are made one-hot in int64, 8 bytes for each class of each pixel.
"""
import torch
from torch import nn
from torch.nn import functional as F

CLASSES = 150
net = nn.Sequential(nn.Conv2d(3, 24, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(24, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(32, CLASSES, 1)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)


def dice(scores, labels):
    scores = scores.softmax(1)
    small = F.interpolate(labels[:, None].float(), scores.shape[-2:]).long()[:, 0]
    at_full_size = labels.clone()
    at_full_size[labels == 255] = 0
    every = F.one_hot(at_full_size, CLASSES)  # here
    wanted = F.one_hot(small, CLASSES).permute(0, 3, 1, 2).float()
    weight = every.sum((0, 1, 2)).float().rsqrt().clamp(max=1)
    return 1 - (2 * (scores * wanted).sum((0, 2, 3)) / (scores + wanted).sum((0, 2, 3)).clamp(min=1) * weight).mean()


for step in range(5):
    images = torch.randn(8, 3, 768, 768, device="cuda")
    labels = torch.randint(0, CLASSES, (8, 768, 768), device="cuda")
    loss = dice(net(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
