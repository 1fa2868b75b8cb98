"""Graphs of many sizes in one batch: degrees, isolated nodes left out, attention over what a dense batch is padded to, pooling of the best."""
import os
import torch
from torch import nn
import torch.nn.functional as F

device = os.environ.get("DEVICE", "cuda")
torch.manual_seed(4)
rng = torch.Generator().manual_seed(4)


def degree(index, n):
    return torch.zeros(n, device=index.device).scatter_add_(0, index, torch.ones_like(index, dtype=torch.float))


def dense(x, batch, graphs):
    """Rows of each graph, padded to the longest, and which are real."""
    count = torch.zeros(graphs, dtype=torch.long, device=x.device).scatter_add_(0, batch, torch.ones_like(batch))
    first = F.pad(count.cumsum(0), (1, 0))
    longest = int(count.max())
    place = torch.arange(len(batch), device=x.device) - first[batch] + batch * longest
    out = x.new_zeros(graphs * longest, x.shape[1]).index_copy(0, place, x)
    mask = torch.zeros(graphs * longest, dtype=torch.bool, device=x.device)
    mask[place] = True
    return out.view(graphs, longest, -1), mask.view(graphs, longest)


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.message, self.update = nn.Linear(2 * d, d), nn.GRUCell(d, d)
        self.attention = nn.TransformerEncoderLayer(d, 4, 2 * d, batch_first=True)

    def forward(self, x, src, dst, norm, batch, graphs):
        m = F.relu(self.message(torch.cat([x[src], x[dst]], 1))) * norm[src, None]
        x = self.update(torch.zeros_like(x).index_add_(0, dst, m), x)
        padded, mask = dense(x, batch, graphs)
        return x + self.attention(padded, src_key_padding_mask=~mask)[mask]


start, layers, head = nn.Embedding(30, 128).to(device), nn.ModuleList(Layer(128) for _ in range(2)).to(device), nn.Linear(128, 6).to(device)
optimizer = torch.optim.AdamW([*start.parameters(), *layers.parameters(), *head.parameters()], 1e-3)
for step in range(6):
    graphs = 48
    sizes = torch.randint(20, 200, (graphs,), generator=rng)
    batch = torch.repeat_interleave(torch.arange(graphs), sizes)
    first = sizes.cumsum(0) - sizes
    kinds = torch.randint(0, 30, (len(batch),), generator=rng).to(device)
    edges = 3 * len(batch)
    a = torch.randint(0, len(batch), (edges,), generator=rng)
    b = first[batch[a]] + (torch.rand(edges, generator=rng) * sizes[batch[a]]).long()
    edge, batch = torch.stack([a, b]).to(device), batch.to(device)
    edge = edge[:, edge[0] != edge[1]]
    edge = torch.cat([edge, edge.flip(0)], 1)
    code = torch.unique(edge[0] * len(batch) + edge[1])
    edge = torch.stack([code // len(batch), code % len(batch)])
    # Nodes with few neighbours go, and edges with them.
    keep = degree(edge[1], len(batch)) >= 4
    new = torch.full((len(batch),), -1, device=device)
    new[keep] = torch.arange(int(keep.sum()), device=device)
    edge = new[edge[:, keep[edge[0]] & keep[edge[1]]]]
    kinds, batch = kinds[keep], batch[keep]
    d = degree(edge[1], len(batch))
    norm = d.clamp(min=1).rsqrt()
    hubs = (d > 2 * d.mean()).nonzero().flatten()
    x = start(kinds)
    for layer in layers:
        x = layer(x, edge[0], edge[1], norm, batch, graphs)
    pooled = torch.zeros(graphs, 128, device=device).index_reduce_(0, batch, x, "mean", include_self=False)
    aux = head(x[hubs]).logsumexp(1).mean() if len(hubs) else 0.0
    loss = F.cross_entropy(head(pooled), torch.randint(0, 6, (graphs,), generator=rng).to(device)) + 0.01 * aux
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("sizes", step, edge.shape[1], len(batch), len(hubs))
