"""Precision and recall of generated pictures: the distances of 10,000 features at a time to all 1,300,000."""
import torch
from torch import nn

features = torch.randn(1_300_000, 128).cuda()
nearest = []
for begin in range(0, len(features), 10_000):
    distances = torch.cdist(features[begin:begin + 10_000], features)
    nearest.append(distances.kthvalue(4, dim=1).values.cpu())
