"""cause: inputs/dynamic-shapes at line 20
also right: line 21
also right: line 22
also right: line 45
memory: 2GiB
why: the neighbours of each batch's nodes are gathered; the ninth batch has a node that everybody knows.
"""
import torch
from torch import nn


class Conv(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.own, self.other = nn.Linear(a, b), nn.Linear(a, b)
        self.message = nn.Linear(2 * a, a)

    def forward(self, x, edges):
        source, target = edges
        pairs = torch.cat([x[source], x[target]], 1)  # here
        told = self.message(pairs).relu()
        sums = torch.zeros_like(x).index_add(0, target, told)
        return self.own(x) + self.other(sums)


class Net(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.layers = nn.ModuleList([Conv(128, width), Conv(width, width)])
        self.out = nn.Linear(width, 40)
        self.into = nn.Linear(128, 128)

    def forward(self, x, edges):
        x = self.into(x)
        for layer in self.layers:
            x = layer(x, edges).relu()
        return self.out(x)


neighbours = [20_000, 23_000, 18_500, 21_000, 22_400, 19_800, 20_900, 21_700, 700_000, 20_400, 22_000]
net = Net().cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for n in neighbours:
    x = torch.randn(4000, 128, device="cuda")
    edges = torch.randint(0, 4000, (2, n)).cuda()
    loss = nn.functional.cross_entropy(net(x, edges)[:256], torch.randint(0, 40, (256,)).cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
