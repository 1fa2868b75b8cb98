"""One large graph on the device: each step draws neighbours of neighbours, gives them numbers anew, and computes on these only."""
import os
import torch
from torch import nn
import torch.nn.functional as F

device = os.environ.get("DEVICE", "cuda")
torch.manual_seed(5)
NODES, EDGES = 30000, 110000
src, dst = torch.randint(0, NODES, (EDGES,)), torch.randint(0, NODES, (EDGES,))
order = dst.argsort()
col, count = src[order].to(device), torch.bincount(dst, minlength=NODES).to(device)
row = F.pad(count.cumsum(0), (1, 0))
features = torch.randn(NODES, 128).to(device)


def sample(seeds, fanout):
    """Edges from drawn neighbours to seeds, and all nodes, the seeds first."""
    has = count[seeds]
    drawn = (torch.rand(len(seeds), fanout, device=device) * has[:, None]).long()
    real = torch.arange(fanout, device=device)[None] < has[:, None]
    at = (row[seeds][:, None] + drawn).clamp(max=EDGES - 1)
    neighbours, target = col[at][real], torch.arange(len(seeds), device=device)[:, None].expand(-1, fanout)[real]
    new = torch.full((NODES,), -1, device=device)
    new[seeds] = torch.arange(len(seeds), device=device)
    unseen = neighbours.unique()
    unseen = unseen[new[unseen] < 0]
    new[unseen] = torch.arange(len(seeds), len(seeds) + len(unseen), device=device)
    return new[neighbours], target, torch.cat([seeds, unseen])


class Sage(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.own, self.others = nn.Linear(i, o), nn.Linear(i, o)

    def forward(self, x, source, target, n):
        total = torch.zeros(n, x.shape[1], device=x.device).index_add_(0, target, x[source])
        number = torch.zeros(n, device=x.device).index_add_(0, target, torch.ones(len(target), device=x.device))
        return self.own(x[:n]) + self.others(total / number.clamp(min=1)[:, None])


layers = nn.ModuleList([Sage(128, 512), Sage(512, 512), Sage(512, 16)]).to(device)
optimizer = torch.optim.Adam(layers.parameters(), 3e-3)
labels = torch.randint(0, 16, (NODES,), device=device)
for step in range(6):
    seeds = torch.randperm(NODES, device=device)[:512 + 64 * step]
    blocks, nodes = [], seeds
    for fanout in (10, 8, 5):
        source, target, more = sample(nodes, fanout)
        blocks.insert(0, (source, target, len(nodes)))
        nodes = more
    x = features[nodes]
    for layer, (source, target, n) in zip(layers, blocks):
        x = layer(x, source, target, n)
        x = F.dropout(F.relu(x), 0.3) if layer is not layers[-1] else x
    loss = F.cross_entropy(x, labels[seeds])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("sizes", step, [len(b[0]) for b in blocks], len(nodes))
