"""A graph network on one large graph: nothing has a batch; edges are gathered and scattered."""

import torch
import torch.nn.functional as F
from torch import nn


class Conv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * i, o), nn.ReLU(), nn.Linear(o, o))
        self.own = nn.Linear(i, o)

    def forward(self, x, edges):
        a, b = edges
        m = self.message(torch.cat([x[a], x[b]], -1))
        return self.own(x) + torch.zeros(x.size(0), m.size(1), device=x.device, dtype=m.dtype).index_add_(0, b, m)


class Net(nn.Module):
    def __init__(self, i=128, h=256, o=40, n=4):
        super().__init__()
        self.convs = nn.ModuleList([Conv(i, h)] + [Conv(h, h) for _ in range(n - 1)])
        self.head = nn.Linear(h, o)

    def forward(self, x, edges):
        for conv in self.convs:
            x = F.dropout(F.relu(conv(x, edges)), 0.5, self.training)
        return self.head(x)


torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
n_nodes, n_edges = 170_000, 1_100_000
x = torch.randn(n_nodes, 128).to(device)
edges = torch.randint(0, n_nodes, (2, n_edges)).to(device)
y = torch.randint(0, 40, (n_nodes,)).to(device)
train = torch.randperm(n_nodes)[: n_nodes // 2].to(device)
model = Net().to(device)
opt = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(12):
    model.train()
    opt.zero_grad()
    F.cross_entropy(model(x, edges)[train], y[train]).backward()
    opt.step()
    model.eval()
    with torch.no_grad():
        acc = (model(x, edges).argmax(-1) == y).float().mean()
    print(epoch, acc.item())
