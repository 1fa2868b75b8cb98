"""A message-passing network for molecules: a network gives each edge a matrix of its own, in each of eight rounds (pytorch_geometric#1415)."""
import torch
from torch import nn


class EdgeConditioned(nn.Module):
    """Each message is the sender's state times a matrix that depends on the bond."""

    def __init__(self, width, bond):
        super().__init__()
        self.width = width
        self.matrices = nn.Sequential(nn.Linear(bond, 128), nn.ReLU(), nn.Linear(128, width * width))
        self.root = nn.Linear(width, width)

    def forward(self, x, sender, receiver, weights):
        messages = torch.matmul(x[sender].unsqueeze(1), weights).squeeze(1)
        gathered = torch.zeros_like(x).index_add_(0, receiver, messages)
        return gathered + self.root(x)


class Molecules(nn.Module):
    def __init__(self, atoms=32, bond=8, width=64, rounds=8):
        super().__init__()
        self.rounds = rounds
        self.embed = nn.Linear(atoms, width)
        self.message = EdgeConditioned(width, bond)
        self.update = nn.GRUCell(width, width)
        self.readout = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 12))

    def forward(self, atoms, sender, receiver, bonds, molecule, molecules):
        h = self.embed(atoms).relu()
        weights = self.message.matrices(bonds).view(-1, self.message.width, self.message.width)
        for _ in range(self.rounds):
            m = self.message(h, sender, receiver, weights).relu()
            h = self.update(m, h)
        pooled = torch.zeros(molecules, h.shape[1], device=h.device).index_add_(0, molecule, h)
        return self.readout(pooled)


def batch(molecules=512, atoms=40, bonds=180):
    n = molecules * atoms
    first = torch.arange(molecules, device="cuda").repeat_interleave(bonds) * atoms
    sender = first + torch.randint(atoms, (molecules * bonds,), device="cuda")
    receiver = first + torch.randint(atoms, (molecules * bonds,), device="cuda")
    molecule = torch.arange(molecules, device="cuda").repeat_interleave(atoms)
    return torch.randn(n, 32, device="cuda"), sender, receiver, torch.randn(len(sender), 8, device="cuda"), molecule, molecules


model = Molecules().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(2000):
    loss = model(*batch()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item())
