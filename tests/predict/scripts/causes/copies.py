"""A model in 32 bits answers under autocast, which stores a copy of each weight."""
import torch
from torch import nn

net = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 4096), nn.GELU(), nn.Linear(4096, 2048)) for _ in range(12)]).cuda().eval()
with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
    for n in range(30):
        print(net(torch.randn(256, 2048, device="cuda")).mean().item())
