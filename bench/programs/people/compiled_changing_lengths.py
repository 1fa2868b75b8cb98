"""A decoder whose batches have another length each time, compiled once for all of them (`dynamic=True`); its loss is its own; Adafactor-like decay."""

import random

import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.a, self.b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.a(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.b(x))))


class Decoder(nn.Module):
    def __init__(self, words=16000, width=512, depth=6):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(1024, width)
        self.layers = nn.ModuleList(Layer(width, 8) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids, labels):
        x = self.words(ids) + self.places.weight[: ids.size(1)]
        for it in self.layers:
            x = it(x)
        logits = self.norm(x) @ self.words.weight.T
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=0)


random.seed(0)
torch.manual_seed(0)
model = Decoder().cuda()
run = torch.compile(model, dynamic=True)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.9, 0.98))
for step in range(40):
    length = random.choice([256, 384, 512, 640])
    ids = torch.randint(1, 16000, (24, length + 1)).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        loss = run(ids[:, :-1], ids[:, 1:])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
