"""A decoder whose blocks are compiled one by one (`block.compile()`), gradients of four small batches added up, tied embeddings."""

import torch
import torch.nn.functional as F
from torch import nn


class Norm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * self.weight


class Block(nn.Module):
    def __init__(self, d, heads, groups):
        super().__init__()
        self.d, self.heads, self.groups, width = d, heads, groups, d // heads
        self.n1, self.n2 = Norm(d), Norm(d)
        self.q, self.kv, self.o = nn.Linear(d, d, bias=False), nn.Linear(d, 2 * groups * width, bias=False), nn.Linear(d, d, bias=False)
        self.gate, self.up, self.down = (nn.Linear(a, b, bias=False) for a, b in ((d, 3 * d), (d, 3 * d), (3 * d, d)))

    def forward(self, x):
        b, t, d = x.shape
        y = self.n1(x)
        q = self.q(y).view(b, t, self.heads, -1).transpose(1, 2)
        k, v = self.kv(y).view(b, t, 2, self.groups, -1).permute(2, 0, 3, 1, 4)
        k, v = (it.repeat_interleave(self.heads // self.groups, 1) for it in (k, v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        y = self.n2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self, vocabulary=32000, d=1024, heads=16, groups=4, layers=8):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, d)
        self.blocks = nn.ModuleList([Block(d, heads, groups) for _ in range(layers)])
        self.norm, self.head = Norm(d), nn.Linear(d, vocabulary, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids, targets):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), targets.flatten())


torch.manual_seed(0)
model = Decoder().cuda().to(torch.bfloat16)
for block in model.blocks:
    block.compile()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)
for step in range(20):
    for part in range(4):
        ids = torch.randint(32000, (8, 1025)).cuda()
        loss = model(ids[:, :-1], ids[:, 1:]) / 4
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(step, 4 * loss.item())
