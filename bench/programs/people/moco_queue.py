"""Momentum contrast: a ResNet-50 and its average, a queue of keys on the GPU, two views from workers."""
import copy
import math

import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torch.utils.data import DataLoader, Dataset


class TwoViews(Dataset):
    def __init__(self, n=4096, size=160):
        self.n, self.size = n, size

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        image = torch.rand(3, self.size + 16, self.size + 16, generator=g)
        views = []
        for _ in range(2):
            y, x = torch.randint(0, 17, (2,)).tolist()
            view = image[:, y : y + self.size, x : x + self.size]
            if torch.rand(()) < 0.5:
                view = view.flip(-1)
            views.append((view - 0.5) / 0.25)
        return views


class MoCo(nn.Module):
    def __init__(self, dim=128, queue=65536, momentum=0.999, temperature=0.2):
        super().__init__()
        self.q = torchvision.models.resnet50(num_classes=dim)
        self.q.fc = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), self.q.fc)
        self.k = copy.deepcopy(self.q)
        for p in self.k.parameters():
            p.requires_grad_(False)
        self.momentum, self.temperature = momentum, temperature
        self.register_buffer("queue", F.normalize(torch.randn(dim, queue), dim=0))
        self.register_buffer("at", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def follow(self):
        for a, b in zip(self.q.parameters(), self.k.parameters()):
            b.mul_(self.momentum).add_(a, alpha=1 - self.momentum)

    @torch.no_grad()
    def enqueue(self, keys):
        at, n = int(self.at), len(keys)
        self.queue[:, at : at + n] = keys.T
        self.at[0] = (at + n) % self.queue.shape[1]

    def forward(self, a, b):
        q = F.normalize(self.q(a), dim=1)
        with torch.no_grad():
            self.follow()
            order = torch.randperm(len(b), device=b.device)
            k = F.normalize(self.k(b[order]), dim=1)[order.argsort()]
        positive = (q * k).sum(1, keepdim=True)
        negative = q @ self.queue.clone()
        logits = torch.cat([positive, negative], dim=1) / self.temperature
        self.enqueue(k)
        return logits, torch.zeros(len(logits), dtype=torch.long, device=logits.device)


torch.manual_seed(0)
model = MoCo().cuda()
optimizer = torch.optim.SGD(model.q.parameters(), 0.03, momentum=0.9, weight_decay=1e-4)
loader = DataLoader(TwoViews(), batch_size=256, shuffle=True, num_workers=4, drop_last=True, pin_memory=True)
for epoch in range(3):
    for group in optimizer.param_groups:
        group["lr"] = 0.03 * 0.5 * (1 + math.cos(math.pi * epoch / 3))
    for i, (a, b) in enumerate(loader):
        logits, target = model(a.cuda(non_blocking=True), b.cuda(non_blocking=True))
        loss = F.cross_entropy(logits, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 5 == 0:
            print(epoch, i, loss.item(), (logits.argmax(1) == 0).float().mean().item())
    torch.save(model.state_dict(), "moco.pt")
