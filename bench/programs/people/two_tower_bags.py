"""Two towers for retrieval: bags of words by EmbeddingBag, in-batch negatives, Adagrad, a memory of earlier items."""
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, D, BATCH, WORDS = 400_000, 192, 4096, 40


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(VOCAB, D, mode="mean")
        self.deep = nn.Sequential(nn.Linear(D, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 256))

    def forward(self, tokens):
        return F.normalize(self.deep(self.words(tokens)), dim=-1)


torch.manual_seed(0)
queries, items = Tower().cuda(), Tower().cuda()
optimizer = torch.optim.Adagrad([*queries.parameters(), *items.parameters()], lr=0.05)
memory = F.normalize(torch.randn(32768, 256), dim=-1).cuda()
at, losses = 0, []
for step in range(80):
    q, i = torch.randint(0, VOCAB, (BATCH, WORDS)).cuda(), torch.randint(0, VOCAB, (BATCH, WORDS)).cuda()
    a, b = queries(q), items(i)
    logits = a @ torch.cat([b, memory]).T / 0.05
    loss = F.cross_entropy(logits, torch.arange(BATCH, device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        memory[at : at + BATCH] = b
        at = (at + BATCH) % 32768
    losses.append(loss.detach())
print(torch.stack(losses).mean().item())
