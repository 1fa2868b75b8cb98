"""cause: growth/per-step at line 23
also right: leak/results-kept
also right: line 30
also right: line 21
memory: 2GiB
why: a hook keeps the attention maps of each step for a video.
"""
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width=256, heads=8):
        super().__init__()
        self.heads, self.maps = heads, []
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        n, t, w = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = (q @ k.transpose(-1, -2) * (w // self.heads) ** -0.5).softmax(-1)
        if self.training:
            self.maps.append(a[:8].detach().clone())  # here
        return x + self.out((a @ v).transpose(1, 2).reshape(n, t, w))


net = nn.Sequential(nn.Linear(32, 256), *[Attention() for _ in range(4)], nn.Linear(256, 1)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(300):
    loss = net(torch.randn(16, 160, 32, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
