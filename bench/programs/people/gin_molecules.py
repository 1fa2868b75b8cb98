"""A graph isomorphism network on batches of small graphs: index_add for messages and for the readout, BatchNorm on nodes, edge features."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader


def graph(i):
    g = torch.Generator().manual_seed(i)
    nodes = 40 + i % 30
    edges = torch.randint(0, nodes, (2, 4 * nodes), generator=g)
    return torch.randint(0, 120, (nodes,), generator=g), edges, torch.randint(0, 20, (edges.size(1),), generator=g), torch.randn(1, generator=g)


def collate(items):
    sizes = torch.tensor([len(it[0]) for it in items])
    offsets = torch.cumsum(sizes, 0) - sizes
    return (
        torch.cat([it[0] for it in items]), torch.cat([it[1] + o for it, o in zip(items, offsets.tolist())], 1), torch.cat([it[2] for it in items]),
        torch.repeat_interleave(torch.arange(len(items)), sizes), torch.cat([it[3] for it in items]),
    )


class Convolution(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.BatchNorm1d(2 * d), nn.ReLU(), nn.Linear(2 * d, d))
        self.bonds = nn.Embedding(20, d)
        self.eps = nn.Parameter(torch.zeros(1))

    def forward(self, x, edges, bonds):
        messages = F.relu(x[edges[0]] + self.bonds(bonds))
        return self.mlp((1 + self.eps) * x + torch.zeros_like(x).index_add_(0, edges[1], messages))


class GIN(nn.Module):
    def __init__(self, d=300, layers=5):
        super().__init__()
        self.atoms = nn.Embedding(120, d)
        self.layers = nn.ModuleList([Convolution(d) for _ in range(layers)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(d) for _ in range(layers)])
        self.head = nn.Linear(d, 1)

    def forward(self, atoms, edges, bonds, batch, graphs):
        x = self.atoms(atoms)
        for layer, norm in zip(self.layers, self.norms):
            x = F.dropout(F.relu(norm(layer(x, edges, bonds))), 0.5, self.training)
        total = torch.zeros(graphs, x.size(1), device=x.device).index_add_(0, batch, x)
        return self.head(total / torch.bincount(batch, minlength=graphs).clamp(min=1)[:, None]).squeeze(1)


torch.manual_seed(0)
loader = DataLoader(range(12000), 1024, shuffle=True, drop_last=True, collate_fn=lambda ids: collate([graph(i) for i in ids]), num_workers=2)
model = GIN().cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for epoch in range(3):
    for atoms, edges, bonds, batch, target in loader:
        atoms, edges, bonds, batch, target = (it.cuda() for it in (atoms, edges, bonds, batch, target))
        loss = F.l1_loss(model(atoms, edges, bonds, batch, 1024), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
