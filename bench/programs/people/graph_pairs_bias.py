"""A transformer over molecules: the bias of its attention is learned from a dense tensor of pairs that goes through each layer."""

import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, d, pair, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.pair_norm, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(pair), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.bias, self.outer = nn.Linear(pair, heads), nn.Linear(heads, pair)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.SiLU(), nn.Dropout(0.1), nn.Linear(4 * d, d))

    def forward(self, x, pairs, mask):
        b, n, d = x.shape
        q, k, v = (it.view(b, n, self.heads, -1).transpose(1, 2) for it in self.qkv(self.norm(x)).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + self.bias(self.pair_norm(pairs)).permute(0, 3, 1, 2)
        weights = scores.masked_fill(~mask[:, None, None, :], -1e9).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(b, n, d))
        pairs = pairs + self.outer(scores.permute(0, 2, 3, 1))
        return x + self.mlp(self.norm2(x)), pairs


class Molecules(nn.Module):
    def __init__(self, d=512, pair=64, heads=16, layers=10):
        super().__init__()
        self.atoms, self.bonds, self.distance = nn.Embedding(120, d), nn.Embedding(12, pair), nn.Linear(32, pair)
        self.layers = nn.ModuleList([Layer(d, pair, heads) for _ in range(layers)])
        self.head = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 12))

    def forward(self, atoms, bonds, places):
        mask = atoms > 0
        radial = torch.exp(-((torch.cdist(places, places)[..., None] - torch.linspace(0, 10, 32, device=places.device)) ** 2))
        x, pairs = self.atoms(atoms), self.bonds(bonds) + self.distance(radial)
        for layer in self.layers:
            x, pairs = layer(x, pairs, mask)
        kept = mask[..., None].float()
        return self.head((x * kept).sum(1) / kept.sum(1))


device = "cuda"
torch.manual_seed(0)
model = Molecules().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.01)
warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20))
for step in range(40):
    lengths = torch.randint(40, 97, (48,))
    atoms = torch.randint(1, 120, (48, 96)) * (torch.arange(96) < lengths[:, None])
    bonds, places, target = torch.randint(0, 12, (48, 96, 96)), torch.randn(48, 96, 3) * 3, torch.randn(48, 12)
    loss = F.l1_loss(model(atoms.to(device), bonds.to(device), places.to(device)), target.to(device))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    warm.step()
print("done", loss.item())
