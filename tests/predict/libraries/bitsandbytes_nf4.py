"""QLoRA: layers in NF4, adapters in bf16, a paged optimizer of 8 bits."""

import bitsandbytes as bnb
import torch
from torch import nn


class Adapted(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.base = bnb.nn.Linear4bit(width, width, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4", compress_statistics=True)
        self.base.requires_grad_(False)
        self.down, self.up = nn.Linear(width, 8, bias=False), nn.Linear(8, width, bias=False)

    def forward(self, x):
        return x + self.base(x) + self.up(self.down(x))


model = nn.Sequential(*(Adapted(512) for _ in range(4)), nn.Linear(512, 10)).cuda()
optimizer = bnb.optim.PagedAdamW8bit([it for it in model.parameters() if it.requires_grad], 1e-4)
for _ in range(4):
    with torch.autocast("cuda", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(torch.randn(32, 512, device="cuda")), torch.randint(0, 10, (32,), device="cuda"))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
