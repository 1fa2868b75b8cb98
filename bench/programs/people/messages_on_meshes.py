"""Simulation on a mesh: edges and nodes that tell each other what they know, by index and `index_add`, noise in the input, many rounds."""
import torch
from torch import nn

NODES, EDGES, D, ROUNDS = 12000, 70000, 128, 10


def mlp(inside, outside=D, norm=True):
    layers = [nn.Linear(inside, D), nn.ReLU(), nn.Linear(D, D), nn.ReLU(), nn.Linear(D, outside)]
    return nn.Sequential(*layers, *([nn.LayerNorm(outside)] if norm else []))


class Round(nn.Module):
    def __init__(self):
        super().__init__()
        self.edge, self.node = mlp(3 * D), mlp(2 * D)

    def forward(self, x, e, start, end):
        e = e + self.edge(torch.cat([e, x[start], x[end]], -1))
        heard = torch.zeros_like(x).index_add(0, end, e)
        return x + self.node(torch.cat([x, heard], -1)), e


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.nodes, self.edges, self.rounds, self.out = mlp(12), mlp(7), nn.ModuleList(Round() for _ in range(ROUNDS)), mlp(D, 3, False)

    def forward(self, nodes, edges, start, end):
        x, e = self.nodes(nodes), self.edges(edges)
        for it in self.rounds:
            x, e = it(x, e, start, end)
        return self.out(x)


torch.manual_seed(0)
model = Model().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9999)
start, end = torch.randint(0, NODES, (2, EDGES), device="cuda")
for step in range(30):
    nodes = torch.randn(NODES, 12, device="cuda") + 0.003 * torch.randn(NODES, 12, device="cuda")
    loss = (model(nodes, torch.randn(EDGES, 7, device="cuda"), start, end) - torch.randn(NODES, 3, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    decay.step()
    if step % 10 == 0:
        print(step, loss.item())
