"""cause: leak/graph-retained at line 27
also right: line 26
also right: line 25
also right: growth/per-step
memory: 2GiB
why: the bank of features is updated with vectors that have a graph, so the graph of every update hangs on the bank.
"""
import torch
from torch import nn


class Bank:
    def __init__(self, size, width, momentum=0.5):
        self.vectors = nn.functional.normalize(torch.randn(size, width, device="cuda"), dim=1)
        self.momentum = momentum

    def scores(self, features):
        return features @ self.vectors.detach().t() / 0.07

    def negatives(self, features, n=4096):
        some = torch.randint(0, len(self.vectors), (n,), device="cuda")
        return features @ self.vectors.detach()[some].t() / 0.07

    def update(self, rows, features):
        mixed = self.momentum * self.vectors[rows] + (1 - self.momentum) * features
        updated = self.vectors.index_copy(0, rows, mixed)
        self.vectors = nn.functional.normalize(updated, dim=1)  # here


encoder = nn.Sequential(
    nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    nn.Linear(64, 128),
).cuda()
bank = Bank(50_000, 128)
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.03, momentum=0.9)
for step in range(300):
    images = torch.randn(64, 3, 64, 64, device="cuda")
    rows = torch.randint(0, 50_000, (64,), device="cuda")
    features = nn.functional.normalize(encoder(images), dim=1)
    positive = (features * bank.vectors.detach()[rows]).sum(1, keepdim=True) / 0.07
    scores = torch.cat([positive, bank.negatives(features)], 1)
    loss = nn.functional.cross_entropy(scores, torch.zeros(64, dtype=torch.long, device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    bank.update(rows, features)
