"""Validates after each epoch with a metric that stores the features of all pictures. Nothing resets the metric between epochs."""
import torch
from torch import nn


class Neighbours:
    """How often the nearest other picture is of the same class."""

    def __init__(self):
        self.features, self.classes = [], []

    def update(self, features, classes):
        self.features.append(features)
        self.classes.append(classes)

    def compute(self):
        features, classes = torch.cat(self.features[-40:]), torch.cat(self.classes[-40:])
        near = torch.cat([(part @ features.T).topk(2).indices[:, 1] for part in features.split(256)])
        return (classes[near] == classes).float().mean().item()


model = nn.Sequential(nn.Conv2d(3, 64, 7, 4), nn.ReLU(), nn.Conv2d(64, 256, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(4096, 4096)).cuda()
head = nn.Linear(4096, 100).cuda()
optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.01)
metric = Neighbours()
for epoch in range(300):
    model.train()
    for _ in range(25):
        x, y = torch.randn(32, 3, 128, 128).cuda(), torch.randint(100, (32,)).cuda()
        loss = nn.functional.cross_entropy(head(model(x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        for _ in range(40):
            metric.update(model(torch.randn(128, 3, 128, 128).cuda()), torch.randint(100, (128,)).cuda())
    print(epoch, loss.item(), metric.compute())
