"""A mixture of experts that are chosen by the token itself: sorted by expert, counted, each expert its own part."""
import os
import torch
from torch import nn

device = os.environ.get("DEVICE", "cuda")
torch.manual_seed(21)
EXPERTS, CAPACITY = 12, 420
embed, head = nn.Embedding(6000, 256).to(device), nn.Linear(256, 6000).to(device)
experts = nn.ModuleList(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(EXPERTS)).to(device)
optimizer = torch.optim.AdamW([*embed.parameters(), *head.parameters(), *experts.parameters()])
for step in range(5):
    ids = (torch.rand(8, 513) ** 3 * 6000).long().to(device)
    x = embed(ids[:, :-1]).flatten(0, 1)
    expert = (ids[:, :-1].flatten() * 2654435761) % 2**32 * EXPERTS // 2**32
    chosen, order = torch.sort(expert, stable=True)
    counts = torch.bincount(chosen, minlength=EXPERTS)
    first = counts.cumsum(0) - counts
    place = torch.arange(order.numel(), device=device) - first[chosen]
    fits = place < CAPACITY
    order, kept = order[fits], counts.clamp(max=CAPACITY)
    parts = torch.split(x[order], kept.tolist())
    done = torch.cat([e(it) for e, it in zip(experts, parts)])
    x = x.index_add(0, order, done)
    loss = nn.functional.cross_entropy(head(x), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("sizes", [it.shape[0] for it in parts])
