"""Many small molecules in one batch, as PyTorch Geometric joins them: atoms of all, edges with offsets, and a vector that says whose atom it is."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(3)
W, GRAPHS, ATOMS, EDGES = 256, 2048, 24, 52


class Message(nn.Module):
    def __init__(self):
        super().__init__()
        self.of = nn.Sequential(nn.Linear(3 * W, W), nn.SiLU(), nn.Linear(W, W))
        self.update = nn.GRUCell(W, W)

    def forward(self, h, edges, e):
        m = self.of(torch.cat([h[edges[0]], h[edges[1]], e], -1))
        return self.update(torch.zeros_like(h).index_add(0, edges[1], m), h)


class Net(nn.Module):
    def __init__(self, n_layers=5):
        super().__init__()
        self.atom, self.bond = nn.Embedding(100, W), nn.Embedding(5, W)
        self.layers = nn.ModuleList(Message() for _ in range(n_layers))
        self.head = nn.Sequential(nn.Linear(W, W), nn.SiLU(), nn.Linear(W, 1))

    def forward(self, atoms, bonds, edges, batch, n):
        h, e = self.atom(atoms), self.bond(bonds)
        for layer in self.layers:
            h = h + layer(h, edges, e)
        pooled = torch.zeros(n, W, device=h.device).index_add(0, batch, h)
        return self.head(pooled).squeeze(-1)


def batch():
    atoms = torch.randint(0, 100, (GRAPHS * ATOMS,))
    offset = torch.arange(GRAPHS).repeat_interleave(EDGES) * ATOMS
    edges = torch.randint(0, ATOMS, (2, GRAPHS * EDGES)) + offset
    whose = torch.arange(GRAPHS).repeat_interleave(ATOMS)
    return [it.cuda() for it in (atoms, torch.randint(0, 5, (GRAPHS * EDGES,)), edges, whose)], torch.randn(GRAPHS).cuda()


net = Net().cuda()
opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(12):
    inputs, target = batch()
    loss = F.l1_loss(net(*inputs, GRAPHS), target)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 4 == 3:
        net.eval()
        with torch.no_grad():
            inputs, target = batch()
            print(step, loss.item(), F.l1_loss(net(*inputs, GRAPHS), target).item())
        net.train()
