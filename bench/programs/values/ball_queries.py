"""Points: neighbours within a radius as an edge list, messages along it, points that survive a score."""
import torch
from torch import nn
torch.manual_seed(0)
class Conv(nn.Module):
    def __init__(self, i, o):
        super().__init__(); self.m = nn.Sequential(nn.Linear(2 * i + 3, o), nn.ReLU(), nn.Linear(o, o))
    def forward(self, x, p, src, dst):
        e = self.m(torch.cat([x[src], x[dst], p[src] - p[dst]], 1))
        return torch.zeros(len(x), e.shape[1], device=x.device).index_add_(0, dst, e)
a, b, head = Conv(3, 64).cuda(), Conv(64, 128).cuda(), nn.Linear(128, 10).cuda()
opt = torch.optim.Adam([*a.parameters(), *b.parameters(), *head.parameters()], 1e-3)
for step in range(5):
    n = 3000 + 100 * step
    p = torch.rand(n, 3).cuda(); y = torch.randint(0, 10, (n,)).cuda()
    near = torch.cdist(p, p) < 0.12
    near.fill_diagonal_(False)
    src, dst = near.nonzero(as_tuple=True)
    x = a(p, p, src, dst).relu()
    x = b(x, p, src, dst)
    logits = head(x)
    sure = torch.rand(n, device="cuda") > 0.3
    loss = nn.functional.cross_entropy(logits[sure], y[sure])
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, len(src), int(sure.sum()), loss.item())
