"""A recommender: two million items, of which a batch shows a few thousand."""
import torch
from torch import nn


class Recommender(nn.Module):
    def __init__(self, users=300_000, items=2_000_000, width=64):
        super().__init__()
        self.users, self.items = nn.Embedding(users, width, sparse=SPARSE), nn.Embedding(items, width, sparse=SPARSE)

    def forward(self, user, item):
        return (self.users(user) * self.items(item)).sum(-1)


SPARSE = False
net = Recommender().cuda()
opt = torch.optim.SparseAdam(net.parameters()) if SPARSE else torch.optim.Adam(net.parameters())
for step in range(100):
    user, item = torch.randint(0, 300_000, (4096,)).cuda(), torch.randint(0, 2_000_000, (4096,)).cuda()
    loss = nn.functional.softplus(-net(user, item)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
