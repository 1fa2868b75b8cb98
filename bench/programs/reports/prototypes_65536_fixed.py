"""Self-distillation with ten crops: the logits of 65,536 prototypes for each crop, and their softmax."""
import copy

import torch
import torch.nn.functional as F
from torch import nn


class ViT(nn.Module):
    def __init__(self, dim=192, depth=6, heads=3, patch=16):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, patch, patch)
        self.blocks = nn.TransformerEncoder(nn.TransformerEncoderLayer(dim, heads, 4 * dim, batch_first=True, norm_first=True), depth)

    def forward(self, x):
        return self.blocks(self.patch(x).flatten(2).transpose(1, 2)).mean(1)


class Student(nn.Module):
    def __init__(self, out=8192):
        super().__init__()
        self.body = ViT()
        self.head = nn.Sequential(nn.Linear(192, 1024), nn.GELU(), nn.Linear(1024, 256))
        self.last = nn.Linear(256, out, bias=False)

    def forward(self, crops):
        z = torch.cat([self.body(c) for c in crops])
        return self.last(F.normalize(self.head(z), dim=-1))


student = Student().cuda()
teacher = copy.deepcopy(student).requires_grad_(False)
optimizer = torch.optim.AdamW(student.parameters(), lr=5e-4)
center = torch.zeros(1, 8192, device="cuda")
for step in range(400):
    large = [torch.rand(64, 3, 224, 224).cuda() for _ in range(2)]
    small = [torch.rand(64, 3, 96, 96).cuda() for _ in range(8)]
    with torch.no_grad():
        targets = F.softmax((teacher(large) - center) / 0.04, dim=-1).chunk(2)
    outputs = (student(large + small) / 0.1).chunk(10)
    loss, n = 0, 0
    for i, q in enumerate(targets):
        for j, v in enumerate(outputs):
            if i != j:
                loss, n = loss + torch.sum(-q * F.log_softmax(v, dim=-1), dim=-1).mean(), n + 1
    loss = loss / n
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for s, t in zip(student.parameters(), teacher.parameters()):
            t.mul_(0.996).add_(s, alpha=0.004)
