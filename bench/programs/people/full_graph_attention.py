"""A graph attention network on the whole graph at once; no batches. Edges are a COO list on the GPU."""
import torch
import torch.nn.functional as F
from torch import nn

N, E, D, CLASSES = 120_000, 1_600_000, 128, 40


class GATLayer(nn.Module):
    def __init__(self, i, o, heads):
        super().__init__()
        self.heads, self.o = heads, o
        self.lin = nn.Linear(i, heads * o, bias=False)
        self.src, self.dst = nn.Parameter(torch.randn(heads, o) * 0.1), nn.Parameter(torch.randn(heads, o) * 0.1)

    def forward(self, x, edges):
        h = self.lin(x).view(-1, self.heads, self.o)
        a = (h * self.src).sum(-1)[edges[0]] + (h * self.dst).sum(-1)[edges[1]]
        a = F.leaky_relu(a, 0.2)
        a = (a - a.max()).exp()
        norm = torch.zeros(len(x), self.heads, device=x.device).index_add_(0, edges[1], a)
        a = F.dropout(a / (norm[edges[1]] + 1e-9), 0.4, self.training)
        out = torch.zeros_like(h).index_add_(0, edges[1], h[edges[0]] * a[..., None])
        return out.flatten(1)


class GAT(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([GATLayer(D, 32, 4), GATLayer(128, 32, 4), GATLayer(128, CLASSES, 1)])

    def forward(self, x, edges):
        for n, layer in enumerate(self.layers):
            x = layer(F.dropout(x, 0.3, self.training), edges)
            if n < 2:
                x = F.elu(x)
        return x


torch.manual_seed(1)
x = torch.randn(N, D).cuda()
edges = torch.randint(0, N, (2, E)).cuda()
labels = torch.randint(0, CLASSES, (N,)).cuda()
train = torch.arange(0, N, 3).cuda()
valid = torch.arange(1, N, 3).cuda()
net = GAT().cuda()
opt = torch.optim.Adam(net.parameters(), 5e-3, weight_decay=5e-4)
for epoch in range(30):
    net.train()
    opt.zero_grad()
    loss = F.cross_entropy(net(x, edges)[train], labels[train])
    loss.backward()
    opt.step()
    net.eval()
    with torch.no_grad():
        accuracy = (net(x, edges)[valid].argmax(-1) == labels[valid]).float().mean().item()
    print(epoch, f"{loss.item():.3f} {accuracy:.3f}")
