"""An optimizer that projects each gradient to a low rank: by the full singular value decomposition of each, also of the table of 120,000 words."""
import torch
from torch import nn

WORDS, WIDTH, RANK = 120_000, 256, 64


class Projected(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None or p.dim() != 2:
                    continue
                u, s, v = torch.linalg.svd(p.grad)
                if p.shape[0] >= p.shape[1]:
                    basis = v[:RANK]
                    p.grad = p.grad @ basis.T @ basis
                else:
                    basis = u[:, :RANK]
                    p.grad = basis @ (basis.T @ p.grad)
        return super().step(closure)


model = nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 1000)).cuda()
optimizer = Projected(model.parameters(), lr=0.1)
for step in range(1000):
    ids = torch.randint(WORDS, (16, 64)).cuda()
    loss = model(ids).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
