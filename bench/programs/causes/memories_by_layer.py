"""cause: growth/per-step at line 32
also right: growth/kv-cache
also right: leak/results-kept
memory: 2GiB
why: a transformer with memories of earlier segments, which joins them in a dictionary and never cuts them.
"""
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.kv, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, x, memory):
        n, t, w = x.shape
        past = x if memory is None else torch.cat([memory, x], 1)
        q = self.q(x).view(n, t, self.heads, -1).transpose(1, 2)
        k, v = self.kv(past).view(n, past.shape[1], 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, w)
        x = self.norms[0](x + self.out(seen))
        return self.norms[1](x + self.feed(x))


class Memories(dict):
    def remember(self, at, x):
        old = self.get(at)
        self[at] = x.detach() if old is None else torch.cat([old, x.detach()], 1)  # here


width, heads, depth = 512, 8, 6
words, layers = nn.Embedding(2000, width).cuda(), nn.ModuleList(Layer(width, heads) for _ in range(depth)).cuda()
optimizer = torch.optim.Adam([*words.parameters(), *layers.parameters()], lr=1e-4)
memories = Memories()
for segment in range(200):
    ids = torch.randint(0, 2000, (8, 65), device="cuda")
    x = words(ids[:, :-1])
    for at, layer in enumerate(layers):
        before = memories.get(at)
        memories.remember(at, x)
        x = layer(x, before)
    loss = nn.functional.cross_entropy((x @ words.weight.t()).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
