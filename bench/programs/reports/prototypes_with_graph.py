"""Prototypes of classes are updated by each batch with its graph, and used in the next loss after a detach."""
import torch
import torch.nn.functional as F
import torchvision
from torch import nn


class Prototypes:
    def __init__(self, classes, dim, momentum=0.9):
        self.momentum = momentum
        self.of = {c: torch.zeros(dim, device="cuda") for c in range(classes)}

    def update(self, z, y):
        for c in y.unique().tolist():
            self.of[c] = self.momentum * self.of[c] + (1 - self.momentum) * z[y == c].mean(0)

    def logits(self, z, t=0.1):
        bank = torch.stack([self.of[c].detach() for c in sorted(self.of)])
        return F.normalize(z, dim=1) @ F.normalize(bank, dim=1).T / t


net = torchvision.models.resnet18(num_classes=128).cuda()
prototypes = Prototypes(10, 128)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for epoch in range(50):
    for step in range(200):
        y = torch.randint(0, 10, (64,))
        x = torch.rand(64, 3, 64, 64).cuda()
        z = net(x)
        loss = F.cross_entropy(prototypes.logits(z), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        prototypes.update(net(x), y)
