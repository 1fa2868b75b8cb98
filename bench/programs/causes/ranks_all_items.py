"""cause: size/one-allocation at line 31
also right: line 32
memory: 3GiB
why: training samples a few items; the first evaluation scores every item for every user in one matrix, and masks what was seen.
"""
import torch
import torch.nn.functional as F
from torch import nn

USERS, ITEMS, WIDTH = 24_000, 30_000, 32


class MatrixFactorization(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(USERS, WIDTH)
        self.items = nn.Embedding(ITEMS, WIDTH)
        nn.init.normal_(self.users.weight, std=0.1)
        nn.init.normal_(self.items.weight, std=0.1)

    def forward(self, user, liked, other):
        user = self.users(user)
        return (user * self.items(liked)).sum(-1), (user * self.items(other)).sum(-1)


@torch.no_grad()
def recall_at(model, truth, k=20):
    model.eval()
    users = model.users.weight
    items = model.items.weight
    scores = users @ items.t()  # here
    scores = torch.sigmoid(scores)
    best = scores.topk(k, dim=1).indices
    model.train()
    return (best == truth[:, None]).any(1).float().mean().item()


model = MatrixFactorization().cuda()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
truth = torch.randint(0, ITEMS, (USERS,), device="cuda")
for epoch in range(3):
    for _ in range(20):
        user = torch.randint(0, USERS, (4096,), device="cuda")
        good, bad = model(user, truth[user], torch.randint(0, ITEMS, (4096,), device="cuda"))
        loss = -F.logsigmoid(good - bad).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, recall_at(model, truth))
