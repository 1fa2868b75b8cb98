"""A mixture of experts with a capacity that follows the fullest expert, auxiliary-loss routing, tokens dropped by rank."""
import math
import torch
from torch import nn
from torch.nn import functional as F


class Experts(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.gate = nn.Linear(width, count, bias=False)
        self.up = nn.Parameter(torch.randn(count, width, 4 * width) * 0.02)
        self.down = nn.Parameter(torch.randn(count, 4 * width, width) * 0.02)

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        scores = F.softmax(self.gate(tokens), -1)
        weight, expert = scores.max(-1)
        chosen = F.one_hot(expert, scores.shape[-1])
        place = (chosen.cumsum(0) * chosen).sum(-1) - 1
        capacity = int(chosen.sum(0).max())
        capacity = 8 * math.ceil(capacity / 8)
        box = tokens.new_zeros(scores.shape[-1], capacity, x.shape[-1])
        box[expert, place] = tokens
        out = torch.bmm(F.gelu(torch.bmm(box, self.up)), self.down)
        balance = (scores.mean(0) * chosen.float().mean(0)).sum() * scores.shape[-1]
        return (out[expert, place] * weight[:, None]).reshape(x.shape), balance


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.experts = Experts(width, 8)

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        y, balance = self.experts(self.after(x))
        return x + y, balance


embed, head = nn.Embedding(1000, 256).cuda(), nn.Linear(256, 1000).cuda()
blocks = nn.ModuleList(Block(256) for _ in range(3)).cuda()
parameters = [*embed.parameters(), *head.parameters(), *blocks.parameters()]
optimizer = torch.optim.AdamW(parameters, 1e-3)
for step in range(6):
    ids = torch.randint(0, 1000, (16, 128), device="cuda")
    x, total = embed(ids), 0
    for block in blocks:
        x, balance = block(x)
        total = total + balance
    loss = F.cross_entropy(head(x[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()) + 0.01 * total
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
