"""LightFM-like ranking with sparse gradients: SparseAdam for the tables, AdamW for the rest, BPR loss with many negatives."""

import torch
from torch import nn

n_users, n_items, dim, negatives, batch = 500_000, 2_500_000, 96, 64, 16384
dev = "cuda"


class BPR(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(n_users, dim, sparse=True)
        self.items = nn.Embedding(n_items, dim, sparse=True)
        self.head = nn.Sequential(nn.Linear(3 * dim, 256), nn.GELU(), nn.Linear(256, 1))
        nn.init.normal_(self.users.weight, std=0.01)
        nn.init.normal_(self.items.weight, std=0.01)

    def score(self, u, i):
        return self.head(torch.cat([u, i, u * i], -1)).squeeze(-1)

    def forward(self, user, pos, neg):
        u = self.users(user)
        p = self.score(u, self.items(pos))
        n = self.items(neg)
        u = u.unsqueeze(1).expand_as(n)
        return p, self.score(u, n)


model = BPR().to(dev)
sparse = torch.optim.SparseAdam([model.users.weight, model.items.weight], lr=1e-3)
dense = torch.optim.AdamW(model.head.parameters(), lr=1e-3)
for it in range(40):
    user, pos = torch.randint(n_users, (batch,), device=dev), torch.randint(n_items, (batch,), device=dev)
    neg = torch.randint(n_items, (batch, negatives), device=dev)
    p, n = model(user, pos, neg)
    loss = -torch.nn.functional.logsigmoid(p.unsqueeze(1) - n).mean()
    sparse.zero_grad()
    dense.zero_grad()
    loss.backward()
    sparse.step()
    dense.step()
    if it % 10 == 0:
        print(it, loss.item())
