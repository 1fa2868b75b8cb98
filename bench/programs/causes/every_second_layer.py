"""cause: fragmentation/slack
memory: 2350MiB
why: a student takes every second layer of its teacher, and the teacher goes. Weights of 9 MiB lie two by two in segments of 20 MiB, so each of
these is half empty and cannot go back; no hidden layer of 120 MiB fits into them.
"""
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width=1536):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + nn.functional.gelu(self.linear(self.norm(x)))


class Network(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def distilled(teacher):
    return Network(teacher.blocks[::2])


teacher = Network(Block() for _ in range(130)).cuda().eval()
student = distilled(teacher)
del teacher
with torch.inference_mode():
    for batch in range(4):
        x = torch.randn(20480, 1536, device="cuda")
        print(batch, student(x).mean().item())
