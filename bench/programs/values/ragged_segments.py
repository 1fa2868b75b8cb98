"""Events of users, as many as each has: pooled by segment, recent ones kept, joined again to the longest."""
import os
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

device = os.environ.get("DEVICE", "cuda")
torch.manual_seed(15)
embed = nn.EmbeddingBag(20000, 128, mode="mean").to(device)
items, mlp = nn.Embedding(20000, 128).to(device), nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 1)).to(device)
optimizer = torch.optim.Adagrad([*embed.parameters(), *items.parameters(), *mlp.parameters()])
for step in range(5):
    counts = torch.poisson(torch.full((300,), 25.0 + 5 * step)).long().clamp(min=1).to(device)
    events = torch.randint(0, 20000, (int(counts.sum()),)).to(device)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)[:-1]])
    user = torch.repeat_interleave(torch.arange(300, device=device), counts)
    age = offsets[user] + counts[user] - torch.arange(events.numel(), device=device)
    recent = age <= 20
    pooled = embed(events[recent], torch.cat([offsets.new_zeros(1), torch.bincount(user[recent], minlength=300).cumsum(0)[:-1]]))
    joined = torch.cat([items(events), pooled[user]], 1)
    scores = mlp(joined).squeeze(1)
    rows = pad_sequence(torch.split(scores, counts.tolist()), batch_first=True, padding_value=-1e4)
    loss = -rows.log_softmax(1)[:, 0].mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("sizes", events.numel(), int(recent.sum()), tuple(rows.shape))
