"""cause: size/one-allocation at line 18
also right: line 19
memory: 3GiB
why: a message for each of six million edges is written out before the messages are summed.
"""
import torch
from torch import nn


class Convolution(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.linear = nn.Linear(a, b)

    def forward(self, x, edges, degree):
        source, target = edges
        x = self.linear(x)
        messages = x[source]  # here
        messages = messages * degree[source, None]
        return torch.zeros_like(x).index_add_(0, target, messages) * degree[:, None]


class Network(nn.Module):
    def __init__(self, features=100, width=64, classes=40):
        super().__init__()
        self.first = Convolution(features, width)
        self.second = Convolution(width, classes)

    def forward(self, x, edges, degree):
        return self.second(torch.relu(self.first(x, edges, degree)), edges, degree)


torch.manual_seed(0)
nodes, n_edges = 50_000, 6_000_000
x = torch.randn(nodes, 100).cuda()
y = torch.randint(0, 40, (nodes,)).cuda()
edges = torch.randint(0, nodes, (2, n_edges)).cuda()
degree = torch.bincount(edges[1].cpu(), minlength=nodes).clamp(min=1).rsqrt().cuda()
net = Network().cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(5):
    loss = nn.functional.cross_entropy(net(x, edges, degree), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
