"""Momentum contrast: the queue of 16,384 keys keeps the graph of the key encoder for each batch in it."""
import copy

import torch
import torch.nn.functional as F
import torchvision
from torch import nn


class MoCo(nn.Module):
    def __init__(self, dim=128, size=16384, m=0.999, t=0.07):
        super().__init__()
        self.m, self.t, self.size = m, t, size
        self.encoder_q = torchvision.models.resnet18(num_classes=dim)
        self.encoder_k = copy.deepcopy(self.encoder_q)
        self.queue = None

    @torch.no_grad()
    def momentum_update(self):
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            k.data.mul_(self.m).add_(q.data, alpha=1 - self.m)

    def enqueue(self, keys):
        self.queue = torch.cat([keys, self.queue])[: self.size]

    def forward(self, a, b):
        q = F.normalize(self.encoder_q(a), dim=1)
        self.momentum_update()
        k = F.normalize(self.encoder_k(b), dim=1)
        if self.queue is None:
            self.queue = F.normalize(torch.randn(self.size, q.shape[1], device=q.device), dim=1)
        positive = (q * k).sum(1, keepdim=True)
        negative = q @ self.queue.detach().T
        self.enqueue(k)
        return torch.cat([positive, negative], 1) / self.t


model = MoCo().cuda()
optimizer = torch.optim.SGD(model.encoder_q.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
criterion = nn.CrossEntropyLoss()
for epoch in range(100):
    for i in range(390):
        pictures = torch.rand(128, 3, 64, 64)
        a, b = pictures.flip(3).cuda(), pictures.cuda()
        logits = model(a, b)
        loss = criterion(logits, torch.zeros(len(a), dtype=torch.long, device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
