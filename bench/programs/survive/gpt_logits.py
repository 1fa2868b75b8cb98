"""A GPT whose loss is the script's; one batch is longer."""

import torch
import torch.nn.functional as F
from torch import nn

from planted import STEPS, ended, size

class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.n1, self.n2, self.heads = nn.LayerNorm(d), nn.LayerNorm(d), heads
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (it.view(b, t, self.heads, -1).transpose(1, 2) for it in self.qkv(self.n1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary=8192, d=384, layers=6):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, d), nn.Embedding(2048, d)
        self.blocks = nn.ModuleList(Block(d, 6) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocabulary, bias=False)

    def forward(self, ids, targets=None):
        x = self.tokens(ids) + self.places(torch.arange(ids.size(1), device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        loss = None if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss


model = GPT().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for step in range(STEPS):
    t = size(step, 256, 1024)
    ids = torch.randint(0, 8192, (8, t + 1), device="cuda")
    optimizer.zero_grad()
    logits, _ = model(ids[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    ended(step, loss, model)
