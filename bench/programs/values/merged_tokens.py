"""Tokens that are merged where they are alike, a number of clusters that follows from eigenvalues, and a histogram's bins."""
import torch
from torch import nn
from torch.nn import functional as F


class Merge(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.score = nn.Linear(width, 1)

    def forward(self, x):
        score = self.score(x).squeeze(-1).sigmoid()
        keep = score > score.mean(1, keepdim=True)
        longest = int(keep.sum(1).max().item())
        order = score.argsort(1, descending=True)[:, :longest]
        return x.gather(1, order[..., None].expand(-1, -1, x.shape[-1])) * score.gather(1, order)[..., None]


def clusters(x):
    centred = x - x.mean(0)
    values = torch.linalg.eigvalsh(centred.T @ centred / len(x)).flip(0)
    share = values.cumsum(0) / values.sum()
    return int((share < 0.9).sum()) + 1


class Net(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.inp = nn.Linear(32, width)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, 4, 512, batch_first=True) for _ in range(3))
        self.merges = nn.ModuleList(Merge(width) for _ in range(2))
        self.slots = nn.Parameter(torch.randn(64, width))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.inp(x)
        x = self.layers[0](x)
        x = self.merges[0](x)
        x = self.layers[1](x)
        x = self.merges[1](x)
        count = clusters(x.detach().mean(1))
        slots = self.slots[:count].expand(len(x), -1, -1)
        attention = torch.softmax(slots @ x.transpose(1, 2) / 11, 1)
        return self.head(self.layers[2](attention @ x).mean(1))


model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(6):
    x, y = torch.randn(32, 196, 32).cuda(), torch.randint(0, 10, (32,)).cuda()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
