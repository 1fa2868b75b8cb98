"""Survival from whole slides: a graph network over all patches of a slide, of which one has 400,000 (Patch-GCN#28)."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZES = [3000 + (i * 7919) % 22000 for i in range(400)]
SIZES[271] = 400_000


class Slides(Dataset):
    """A slide is its patches' features and the eight neighbours of each patch."""

    def __len__(self):
        return len(SIZES)

    def __getitem__(self, i):
        n = min(SIZES[i], 60_000)
        features = torch.empty(n, 256)
        receiver = torch.arange(n).repeat_interleave(8)
        sender = (receiver + torch.arange(8).repeat(n)) % n
        return features, torch.stack([sender, receiver]), torch.tensor(i % 4)


class Convolution(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.LayerNorm(2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, x, edges):
        y = self.norm(x).relu()
        messages = y[edges[0]].relu() + 1e-7
        gathered = torch.zeros_like(y).index_add_(0, edges[1], messages)
        return x + self.mlp(gathered / 8 + y)


class SlideGraph(nn.Module):
    def __init__(self, width=128, layers=4):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Dropout(0.25))
        self.layers = nn.ModuleList(Convolution(width) for _ in range(layers))
        self.gate = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
        self.risk = nn.Linear(width, 4)

    def forward(self, features, edges):
        x = self.embed(features)
        for layer in self.layers:
            x = layer(x, edges)
        weights = self.gate(x).softmax(0)
        return self.risk((weights * x).sum(0))


model = SlideGraph().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-4, weight_decay=1e-5)
loader = DataLoader(Slides(), batch_size=1, shuffle=True, collate_fn=lambda items: items[0])
for epoch in range(20):
    total = 0.0
    for features, edges, label in loader:
        scores = model(features.cuda(), edges.cuda())
        loss = nn.functional.cross_entropy(scores[None], label[None].cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(epoch, total / len(loader))
