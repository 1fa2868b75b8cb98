"""Databases as graphs: each sample is a few tables, rows are nodes, foreign keys are edges; joined into one graph by hand as PyG's Batch does it."""
import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=250)
ap.add_argument("--batch-size", type=int, default=48)
ap.add_argument("--eval-every", type=int, default=50)
ap.add_argument("--rows", type=int, default=3000, help="rows of the largest database")
ap.add_argument("--columns", type=int, default=12)
ap.add_argument("--dim", type=int, default=160)
ap.add_argument("--layers", type=int, default=4)
ap.add_argument("--heads", type=int, default=4)
a = ap.parse_args()


class Databases(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.rows = (40 + (a.rows - 40) * torch.rand(n, generator=g) ** 3).long().tolist()
        self.keys = (1 + 4 * torch.rand(n, generator=g)).tolist()
        self.seed = seed

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 1_000_003 + i)
        n, m = self.rows[i], int(self.rows[i] * self.keys[i])
        return {
            "numbers": torch.randn(n, a.columns, generator=g), "kinds": torch.randint(0, 200, (n, a.columns), generator=g),
            "edges": torch.randint(0, n, (2, m), generator=g), "y": torch.randint(0, 10, (), generator=g),
        }


def join(items):
    first, edges, owner = 0, [], []
    for k, it in enumerate(items):
        edges.append(it["edges"] + first)
        owner.append(torch.full((len(it["numbers"]),), k))
        first += len(it["numbers"])
    stack = lambda key: torch.cat([it[key] for it in items])
    return stack("numbers"), stack("kinds"), torch.cat(edges, 1), torch.cat(owner), torch.stack([it["y"] for it in items])


class Attend(nn.Module):
    """Graph attention with a softmax over the edges that enter a node, by scatters."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(dim)
        self.source, self.target, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.score = nn.Parameter(torch.randn(heads, dim // heads) / 8)
        self.mlp = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, edges):
        s, t = edges
        y = self.norm(x)
        split = lambda z: z.view(len(z), self.heads, -1)
        pairs = F.leaky_relu(split(self.source(y))[s] + split(self.target(y))[t], 0.2)
        weight = ((pairs * self.score).sum(-1)).clamp(-10, 10).exp()
        total = weight.new_zeros(len(x), self.heads).index_add_(0, t, weight)
        message = split(self.value(y))[s] * (weight / (total[t] + 1e-6))[..., None]
        mixed = torch.zeros_like(split(y), dtype=message.dtype).index_add_(0, t, message)
        x = x + self.out(mixed.flatten(1))
        return x + self.mlp(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.kinds = nn.Embedding(200, 16)
        self.start = nn.Linear(a.columns * 17, a.dim)
        self.layers = nn.ModuleList(Attend(a.dim, a.heads) for _ in range(a.layers))
        self.head = nn.Sequential(nn.Linear(2 * a.dim, a.dim), nn.ReLU(), nn.Linear(a.dim, 10))

    def forward(self, numbers, kinds, edges, owner, n):
        x = self.start(torch.cat([numbers, self.kinds(kinds).flatten(1)], 1))
        for layer in self.layers:
            x = layer(x, edges)
        total = x.new_zeros(n, a.dim).index_add_(0, owner, x)
        count = torch.bincount(owner, minlength=n)[:, None]
        highest = x.new_full((n, a.dim), -1e4).scatter_reduce_(0, owner[:, None].expand_as(x), x, "amax")
        return self.head(torch.cat([total / count, highest], 1))


torch.manual_seed(0)
net = Net().cuda()
opt = torch.optim.Adam(net.parameters(), lr=5e-4)
train = DataLoader(Databases(250 * a.batch_size, 1), a.batch_size, shuffle=True, collate_fn=join)
valid = DataLoader(Databases(8 * a.batch_size, 2), 2 * a.batch_size, collate_fn=join)
step = 0
while step < a.steps:
    for batch in train:
        *graph, y = (it.cuda() for it in batch)
        loss = F.cross_entropy(net(*graph, len(y)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % a.eval_every == 0:
            net.eval()
            right = n = 0
            with torch.no_grad():
                for batch in valid:
                    *graph, y = (it.cuda() for it in batch)
                    right += (net(*graph, len(y)).argmax(1) == y).sum().item()
                    n += len(y)
            net.train()
            print(f"{step}: loss {loss.item():.3f}, {right / n:.3f} right")
        if step >= a.steps:
            break
print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))
