"""Graphs of 20 to 900 nodes, put together into one large graph a batch, as PyG does; dense edges features."""
import random
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Molecules(Dataset):
    def __init__(self, n, seed):
        r = random.Random(seed)
        self.nodes = [min(900, 20 + int(r.paretovariate(1.3) * 30)) for _ in range(n)]
    def __len__(self): return len(self.nodes)
    def __getitem__(self, i):
        n = self.nodes[i]
        return {"x": torch.randn(n, 64), "edges": torch.randint(0, n, (2, 12 * n)), "y": torch.zeros(1)}

def collate(graphs):
    start, edges, owner = 0, [], []
    for i, g in enumerate(graphs):
        edges.append(g["edges"] + start); owner.append(torch.full((len(g["x"]),), i)); start += len(g["x"])
    return torch.cat([g["x"] for g in graphs]), torch.cat(edges, 1), torch.cat(owner), torch.cat([g["y"] for g in graphs])

class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.message, self.update = nn.Sequential(nn.Linear(2 * d, d), nn.SiLU(), nn.Linear(d, d)), nn.Linear(2 * d, d)
    def forward(self, x, edges):
        m = self.message(torch.cat([x[edges[0]], x[edges[1]]], 1))
        return x + self.update(torch.cat([x, torch.zeros_like(x).index_add_(0, edges[1], m)], 1))

class Net(nn.Module):
    def __init__(self, d=256):
        super().__init__()
        self.into = nn.Linear(64, d)
        self.layers = nn.ModuleList(Layer(d) for _ in range(12))
        self.head = nn.Linear(d, 1)
    def forward(self, x, edges, owner, n):
        x = self.into(x)
        for it in self.layers: x = it(x, edges)
        return torch.zeros(n, 1, device=x.device).index_add_(0, owner, self.head(x)).squeeze(1)

net = Net().cuda()
opt = torch.optim.Adam(net.parameters(), 1e-3)
train = DataLoader(Molecules(6000, 0), 64, shuffle=True, collate_fn=collate)
valid = DataLoader(Molecules(300, 1), 64, collate_fn=collate)
for epoch in range(5):
    for x, e, o, y in train:
        loss = (net(x.cuda(), e.cuda(), o.cuda(), len(y)) - y.cuda()).abs().mean()
        opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        print(epoch, sum((net(x.cuda(), e.cuda(), o.cuda(), len(y)) - y.cuda()).abs().mean().item() for x, e, o, y in valid))
