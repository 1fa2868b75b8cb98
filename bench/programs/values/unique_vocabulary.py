"""A recommender: only the rows of this batch's items are gathered, updated and scored."""
import torch
from torch import nn
torch.manual_seed(0)
ITEMS, D, B, S = 400_000, 128, 256, 50
table = torch.randn(ITEMS, D).mul_(0.02)
gru = nn.GRU(D, 256, batch_first=True).cuda(); out = nn.Linear(256, D).cuda()
opt = torch.optim.Adagrad([*gru.parameters(), *out.parameters()], 1e-2)
table = table.cuda()
for step in range(5):
    ids = torch.randint(0, 60_000, (B, S), device="cuda")
    rows, inverse, counts = torch.unique(ids, return_inverse=True, return_counts=True)
    local = table[rows].requires_grad_()
    seq = local[inverse]
    h, _ = gru(seq[:, :-1])
    scores = out(h).reshape(-1, D)[:4096] @ local.t()
    popular = counts > 1
    loss = nn.functional.cross_entropy(scores, inverse[:, 1:].reshape(-1)[:4096]) + 1e-3 * local[popular].pow(2).sum()
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad(): table[rows] -= 0.1 * local.grad
    print(step, rows.numel(), int(popular.sum()), loss.item())
