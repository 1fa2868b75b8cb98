"""cause: size/model-states
memory: 3GiB 4GiB
why: two tables of embeddings with dense gradients and the states of Adam.
"""
import torch
from torch import nn


class Likes(nn.Module):
    def __init__(self, users=2_000_000, things=400_000, width=128):
        super().__init__()
        self.users, self.things = nn.Embedding(users, width), nn.Embedding(things, width)

    def forward(self, user, thing):
        return (self.users(user) * self.things(thing)).sum(-1)


model = Likes().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(5):
    user, thing = torch.randint(0, 2_000_000, (8192,)).cuda(), torch.randint(0, 400_000, (8192,)).cuda()
    loss = nn.functional.binary_cross_entropy_with_logits(model(user, thing), torch.rand(8192).cuda().round())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
