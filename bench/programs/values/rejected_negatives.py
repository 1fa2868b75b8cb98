"""Recommendation: negatives drawn on the device, those that are positives left out, the rest up to a number for each user."""
import os
import torch
from torch import nn

device = os.environ.get("DEVICE", "cuda")
torch.manual_seed(18)
USERS, ITEMS = 400, 900
users, items = nn.Embedding(USERS, 96).to(device), nn.Embedding(ITEMS, 96).to(device)
optimizer = torch.optim.Adam([*users.parameters(), *items.parameters()], 1e-2)
pairs = torch.stack([torch.randint(0, USERS, (9000,)), torch.randint(0, ITEMS, (9000,))]).to(device)
known = torch.zeros(USERS, ITEMS, dtype=torch.bool, device=device)
known[pairs[0], pairs[1]] = True
codes = pairs[0] * ITEMS + pairs[1]
for step in range(5):
    drawn = torch.randint(0, USERS * ITEMS, (30000,), device=device)
    fresh = drawn[~torch.isin(drawn, codes)]
    user, item = torch.div(fresh, ITEMS, rounding_mode="floor"), fresh % ITEMS
    open_ = ~known[user, item]
    user, item = user[open_], item[open_]
    keep = torch.rand(user.numel(), device=device) < 0.5
    user, item = user[keep], item[keep]
    up = (users(pairs[0]) * items(pairs[1])).sum(1)
    down = (users(user) * items(item)).sum(1)
    loss = nn.functional.softplus(-up).mean() + nn.functional.softplus(down).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("sizes", fresh.numel(), int(open_.sum()), user.numel())
