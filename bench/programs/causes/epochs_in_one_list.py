"""cause: leak/results-kept at line 27
also right: growth/per-step
also right: line 26
memory: 2GiB
why: each epoch's embeddings of all items are kept for a picture of how they move, as rows of a list of lists.
"""
import torch
from torch import nn


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(20_000, 256)
        self.tower = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))

    def forward(self, ids):
        return nn.functional.normalize(self.tower(self.items(ids)), dim=1)


def picture(net):
    net.eval()
    rows = []
    with torch.no_grad():
        for ids in torch.arange(20_000, device="cuda").split(4000):
            found = net(ids)
            rows.append(found)  # here
    net.train()
    return rows


net, pictures = Towers().cuda(), []
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(120):
    for step in range(3):
        a, b = net(torch.randint(0, 20_000, (512,), device="cuda")), net(torch.randint(0, 20_000, (512,), device="cuda"))
        loss = nn.functional.cross_entropy(a @ b.t() / 0.1, torch.arange(512, device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    pictures.append(picture(net))
