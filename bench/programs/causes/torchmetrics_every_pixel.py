"""cause: growth/per-step at line 34
also right: leak/results-kept
also right: line 24
also right: line 33
memory: 2GiB
why: an average precision without thresholds keeps the score and the label of each pixel until compute() is called.
"""
import torch
from torch import nn
from torchmetrics.classification import BinaryAveragePrecision


def block(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())


net = nn.Sequential(block(1, 16), block(16, 16), nn.Conv2d(16, 1, 1)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
precision = BinaryAveragePrecision().cuda()


def batches(n):
    for _ in range(n):
        yield torch.randn(16, 1, 256, 256).cuda(), torch.randint(0, 2, (16, 1, 256, 256)).cuda()


for images, masks in batches(400):
    scores = net(images)
    loss = nn.functional.binary_cross_entropy_with_logits(scores, masks.float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    chances = scores.detach().sigmoid()
    precision.update(chances, masks)  # here
print(precision.compute())
