"""A state is refined in 24 rounds; each round enters autocast itself."""
import torch
from torch import nn

block = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
opt = torch.optim.AdamW(block.parameters(), 1e-4)


def round_of(x):
    return x + block(x)


for step in range(100):
    x = torch.randn(8, 1024, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        for _ in range(24):
            x = round_of(x)
    loss = x.float().pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
