"""torchao: weights in 8 bits under a trained head, and its AdamW of 8 bits."""

import torch
from torch import nn
from torchao.optim import AdamW8bit
from torchao.quantization import Int8WeightOnlyConfig, quantize_

body = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512)).cuda().bfloat16()
quantize_(body, Int8WeightOnlyConfig())
head = nn.Linear(512, 1024).cuda().bfloat16()
optimizer = AdamW8bit(head.parameters(), lr=1e-3)
for _ in range(4):
    x = torch.randn(16, 512, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        x = body(x)
    head(x).float().pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
