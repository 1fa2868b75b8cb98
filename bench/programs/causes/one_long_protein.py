"""cause: inputs/dynamic-shapes at line 50
also right: line 48
memory: 2GiB
why: pairs of residues are square in the length of a protein; the twelfth has 420, the others about 130.
"""
import torch
from torch import nn


class Triangle(nn.Module):
    """Updates the pairs of a structure by its triangles."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.left, self.right, self.gate = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, z):
        x = self.norm(z)
        a, b = self.left(x), self.right(x)
        mixed = torch.einsum("ikc,jkc->ijc", a, b)
        return z + torch.sigmoid(self.gate(x)) * self.out(mixed)


class Folder(nn.Module):
    def __init__(self, width=64, layers=4):
        super().__init__()
        self.residues = nn.Embedding(21, width)
        self.pair = nn.Linear(2 * width, width)
        self.layers = nn.ModuleList(Triangle(width) for _ in range(layers))
        self.distances = nn.Linear(width, 37)

    def forward(self, sequence):
        s = self.residues(sequence)
        n = len(sequence)
        z = self.pair(torch.cat([s[:, None].expand(n, n, -1), s[None].expand(n, n, -1)], -1))
        for layer in self.layers:
            z = layer(z)
        return self.distances(z)


torch.manual_seed(0)
net = Folder().cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
lengths = [128, 96, 140, 110, 131, 122, 90, 136, 127, 118, 125, 420, 133, 101]
for step, length in enumerate(lengths):
    sequence = torch.randint(0, 21, (length,), device="cuda")
    bins = torch.randint(0, 37, (length, length), device="cuda")
    scores = net(sequence)  # here
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), bins.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
