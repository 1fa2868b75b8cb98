"""An encoder of a detector: the attention's weights are of no use to us, and it takes 12 GB (RT-DETR#678)."""
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, width=256, heads=8):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(width, heads, dropout=0.0, batch_first=True)
        self.linear1 = nn.Linear(width, 1024)
        self.linear2 = nn.Linear(1024, width)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, src, pos):
        q = k = src + pos
        out, _ = self.self_attn(q, k, value=src, need_weights=False)
        src = self.norm1(src + out)
        return self.norm2(src + self.linear2(nn.functional.gelu(self.linear1(src))))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 256, 16, 16)
        self.pos = nn.Parameter(torch.zeros(1, 2500, 256))
        self.layers = nn.ModuleList([Layer() for _ in range(6)])
        self.head = nn.Linear(256, 84)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        for layer in self.layers:
            x = layer(x, self.pos)
        return self.head(x)


net = Detector().cuda()
optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
for step in range(1000):
    images = torch.randn(8, 3, 800, 800, device="cuda")
    loss = net(images).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
