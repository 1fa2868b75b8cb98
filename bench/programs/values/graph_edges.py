"""A batch of graphs: edges made undirected, freed of loops and of repetitions, and messages along what is left."""
import os
import torch
from torch import nn

device = os.environ.get("DEVICE", "cuda")
torch.manual_seed(16)
NODES = 3000
message, update = nn.Linear(2 * 64, 64).to(device), nn.GRUCell(64, 64).to(device)
feature = nn.Embedding(40, 64).to(device)
optimizer = torch.optim.AdamW([*message.parameters(), *update.parameters(), *feature.parameters()])
for step in range(5):
    edges = (torch.rand(2, 18000 + 2000 * step) ** 1.7 * NODES).long().to(device)
    both = torch.cat([edges, edges.flip(0)], 1)
    both = both[:, both[0] != both[1]]
    codes = torch.unique(both[0] * NODES + both[1])
    sender, receiver = codes // NODES, codes % NODES
    degree = torch.zeros(NODES, dtype=torch.long, device=device).scatter_add_(0, receiver, torch.ones_like(receiver))
    hubs = degree > 40
    x = feature(torch.randint(0, 40, (NODES,)).to(device))
    sent = message(torch.cat([x[sender], x[receiver]], 1)).relu()
    x = update(torch.zeros_like(x).index_add(0, receiver, sent), x)
    loss = x[hubs].pow(2).mean() + x[degree == 0].abs().sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("sizes", codes.numel(), int(hubs.sum()), int((degree == 0).sum()))
