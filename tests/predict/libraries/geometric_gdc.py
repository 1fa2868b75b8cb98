"""PyG's GDC, which makes a graph sparse by what is computed of it, then a network of convolutions over it."""

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.transforms import GDC
from torch.nn import functional as F

edges = torch.randint(0, 200, (2, 1000))
graph = Data(x=torch.randn(200, 16), edge_index=edges, y=torch.randint(0, 4, (200,))).to("cuda")
graph = GDC(sparsification_kwargs=dict(method="topk", k=16, dim=0), diffusion_kwargs=dict(method="ppr", alpha=0.05), exact=True)(graph)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(16, 32, normalize=False), GCNConv(32, 4, normalize=False)

    def forward(self, it):
        return self.second(F.relu(self.first(it.x, it.edge_index, it.edge_attr)), it.edge_index, it.edge_attr)


model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters(), 0.01)
for _ in range(4):
    F.cross_entropy(model(graph), graph.y).backward()
    optimizer.step()
    optimizer.zero_grad()
