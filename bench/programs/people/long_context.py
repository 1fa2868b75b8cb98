"""Pre-training on sixteen thousand tokens at a time: rotary positions, grouped queries, weights in bfloat16, Adafactor."""

import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
d, layers, heads, kv, hidden, vocab, length = 1024, 12, 16, 4, 2816, 50304, 16384


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        hd = d // heads
        self.norm1, self.norm2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.wq, self.wk, self.wv, self.wo = nn.Linear(d, d, False), nn.Linear(d, kv * hd, False), nn.Linear(d, kv * hd, False), nn.Linear(d, d, False)
        self.w1, self.w3, self.w2 = nn.Linear(d, hidden, False), nn.Linear(d, hidden, False), nn.Linear(hidden, d, False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        h = self.norm1(x)
        q = rotate(self.wq(h).view(b, t, heads, -1).transpose(1, 2), cos, sin)
        k = rotate(self.wk(h).view(b, t, kv, -1).transpose(1, 2), cos, sin)
        v = self.wv(h).view(b, t, kv, -1).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.wo(y.transpose(1, 2).reshape(b, t, d))
        h = self.norm2(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers = nn.Embedding(vocab, d), nn.ModuleList(Layer() for _ in range(layers))
        self.norm, self.out = nn.RMSNorm(d), nn.Linear(d, vocab, False)
        freqs = 1.0 / 500000 ** (torch.arange(0, d // heads, 2) / (d // heads))
        angles = torch.outer(torch.arange(length), freqs)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids):
        x, t = self.embed(ids), ids.size(1)
        for layer in self.layers:
            x = layer(x, self.cos[:t], self.sin[:t])
        return self.out(self.norm(x))


model = Transformer().to("cuda", torch.bfloat16)
opt = torch.optim.Adafactor(model.parameters(), lr=1e-3)
for step in range(12):
    tokens = torch.randint(vocab, (1, length + 1), device="cuda")
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    opt.step()
    opt.zero_grad()
