"""Distillation: the teacher runs with gradients, and no optimizer has it."""
import torch
from torch import nn


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(8)])

    def forward(self, x):
        return self.layers(x)


student, teacher = nn.Sequential(nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 1024)).cuda(), Teacher().cuda().eval()
opt = torch.optim.AdamW(student.parameters(), 1e-3)
for step in range(100):
    x = torch.randn(4096, 1024, device="cuda")
    loss = (student(x) - teacher(x)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
