"""expect: fits, inference (50 forward passes)
why: a sampler calls its network 50 times, and nobody said no_grad: the image is detached after each call. No optimizer.
"""
import torch
from torch import nn

network = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.SiLU(), nn.Conv2d(64, 64, 3, padding=1), nn.SiLU(), nn.Conv2d(64, 3, 3, padding=1)).cuda()
x = torch.randn(8, 3, 128, 128, device="cuda")
for t in reversed(range(50)):
    noise = network(x)
    x = (x - 0.02 * noise).detach()
    if t:
        x = x + 0.01 * torch.randn_like(x)
print(x.shape)
