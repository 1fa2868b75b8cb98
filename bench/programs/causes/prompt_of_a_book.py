"""cause: size/one-allocation at line 19
also right: line 18
memory: 4GiB
why: attention that is written out, with the scores of a prompt of sixteen thousand words.
"""
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width=512, heads=8):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2)
        scores = scores.softmax(-1)  # here
        return self.out((scores @ v).transpose(1, 2).reshape(batch, length, width))


model = nn.Sequential(*(Attention() for _ in range(4))).cuda().eval()
with torch.no_grad():
    for length in (256, 1024, 2048, 9000):
        print(model(torch.randn(1, length, 512, device="cuda")).shape)
