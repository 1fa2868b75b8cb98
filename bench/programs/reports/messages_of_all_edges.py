"""A graph network writes one message for each of 9 million edges (pyg-team/pytorch_geometric#459, #1725)."""
import torch
from torch import nn


class Conv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.dense = nn.Linear(i, o, bias=False)

    def forward(self, x, edges, weight):
        x = self.dense(x)
        messages = x[edges[0]] * weight[:, None]
        return torch.zeros_like(x).index_add(0, edges[1], messages)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = Conv(200, 200), Conv(200, 50)

    def forward(self, x, edges, weight):
        return self.two(self.one(x, edges, weight).relu(), edges, weight)


nodes, count = 14049, 9_075_063
edges = torch.randint(0, nodes, (2, count)).cuda()
weight = torch.full((count,), nodes / count).cuda()
x, y = torch.randn(nodes, 200).cuda(), torch.randint(0, 50, (nodes,)).cuda()
net = Net().cuda()
optimizer = torch.optim.Adam(net.parameters(), 0.01)
for epoch in range(200):
    loss = nn.functional.cross_entropy(net(x, edges, weight), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
