"""Experts with a capacity: tokens sorted by expert, those beyond it dropped, at most so many by position; padding is no token; a z loss over what was kept."""
import os
import torch
from torch import nn
import torch.nn.functional as F

device = os.environ.get("DEVICE", "cuda")
torch.manual_seed(9)
rng = torch.Generator().manual_seed(9)
E, D = 16, 256


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(D, E, bias=False)
        self.up, self.down = nn.Parameter(torch.randn(E, D, 4 * D) * 0.02), nn.Parameter(torch.randn(E, 4 * D, D) * 0.02)

    def forward(self, x):
        p = self.router(x).softmax(-1)
        weight, expert = p.max(-1)
        order = expert.argsort(stable=True)
        count = torch.bincount(expert, minlength=E)
        first = count.cumsum(0) - count
        place = torch.arange(len(x), device=x.device) - first[expert[order]]
        capacity = int(1.25 * len(x) / E)
        kept = place < capacity
        tokens, expert, place = order[kept], expert[order][kept], place[kept]
        into = x.new_zeros(E, capacity, D)
        into[expert, place] = x[tokens]
        out = torch.bmm(F.gelu(torch.bmm(into, self.up)), self.down)
        y = torch.zeros_like(x).index_copy(0, tokens, out[expert, place] * weight[tokens, None])
        return x + y, len(tokens), p[tokens].logsumexp(-1).pow(2).mean()


embed, a, b, head = nn.Embedding(8000, D).to(device), Experts().to(device), Experts().to(device), nn.Linear(D, 8000).to(device)
attention = nn.TransformerEncoderLayer(D, 8, 2 * D, batch_first=True).to(device)
parameters = [p for m in (embed, a, b, head, attention) for p in m.parameters()]
optimizer = torch.optim.AdamW(parameters, 1e-3)
for step in range(6):
    lengths = torch.randint(60, 257, (32,), generator=rng)
    ids = torch.zeros(32, int(lengths.max()), dtype=torch.long)
    for i, n in enumerate(lengths):
        ids[i, :n] = torch.randint(1, 8000, (int(n),), generator=rng)
    ids = ids.to(device)
    mask = ids != 0
    x = attention(embed(ids), src_key_padding_mask=~mask)
    real = x[mask]
    real, n, z = a(real)
    real, m, z2 = b(real)
    # Next tokens of real ones only, of which frequent ones are learned half of the time.
    goal = F.pad(ids[:, 1:], (0, 1))[mask]
    learn = (goal != 0) & ((goal > 800) | (torch.rand(len(goal), device=device) < 0.5))
    loss = F.cross_entropy(head(real[learn]), goal[learn]) + 1e-3 * (z + z2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("sizes", step, len(goal), int(learn.sum()), n, m)
