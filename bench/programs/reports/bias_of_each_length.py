"""The relative bias of attention is cached by functools.lru_cache, one for each length that comes."""
import functools
import random

import torch
import torch.nn.functional as F
from torch import nn


@functools.lru_cache(maxsize=None)
def alibi(length, heads, device):
    slopes = torch.tensor([2 ** (-8 * (i + 1) / heads) for i in range(heads)], device=device)
    distance = torch.arange(length, device=device)[None] - torch.arange(length, device=device)[:, None]
    return (slopes[:, None, None] * -distance.abs()[None]).to(torch.float16)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=alibi(n, self.heads, x.device).to(q.dtype))
        x = x + self.out(y.transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(x)


class LM(nn.Module):
    def __init__(self, vocab=5000, dim=384, heads=12, layers=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


random.seed(3)
model = LM().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for step in range(8000):
    length = random.randint(600, 1200)
    ids = torch.randint(0, 5000, (2, length + 1)).cuda()
    logits = model(ids[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
