"""A vision transformer of one's own: 2,304 patches, attention written out."""
import torch
from torch import nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width=192, heads=3):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(self.first(x)).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(attend(q, k, v).transpose(1, 2).reshape(b, n, c))
        return x + self.mlp(self.second(x))


def attend(q, k, v):
    weights = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
    weights = F.dropout(weights.softmax(dim=-1), 0.1)
    return weights @ v


net = nn.Sequential(nn.Conv2d(3, 192, 8, 8), nn.Flatten(2)).cuda()
blocks = nn.Sequential(*[Block() for _ in range(6)]).cuda()
opt = torch.optim.AdamW([*net.parameters(), *blocks.parameters()], 1e-4)
for step in range(100):
    loss = blocks(net(torch.randn(4, 3, 384, 384, device="cuda")).transpose(1, 2)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
