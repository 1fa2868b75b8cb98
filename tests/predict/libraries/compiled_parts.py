"""Blocks that are compiled one by one, as a model of many equal blocks is, with sizes that change from batch to batch."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.second(nn.functional.gelu(self.first(self.norm(x))))


model = nn.Sequential(*(Block(128) for _ in range(4)), nn.Linear(128, 10)).cuda()
for block in model[:4]:
    block.compile(dynamic=True)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for length in (24, 40, 56, 32):
    x = torch.randn(8, length, 128, device="cuda")
    torch._dynamo.mark_dynamic(x, 1)
    model(x).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
