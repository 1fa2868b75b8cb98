"""A mixture of experts: top two, a capacity for each expert, what is over it is dropped."""
import torch
from torch import nn
torch.manual_seed(0)
D, E, T = 512, 8, 8192
class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(D, E, bias=False)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D)) for _ in range(E)])
    def forward(self, x):
        probs = self.gate(x).softmax(-1)
        w, idx = probs.topk(2, -1)
        capacity = int(1.25 * 2 * x.shape[0] / E)
        flat = idx.reshape(-1)
        one_hot = nn.functional.one_hot(flat, E)
        place = (one_hot.cumsum(0) - 1).gather(1, flat[:, None]).squeeze(1)
        keep = place < capacity
        out = torch.zeros_like(x)
        token = torch.arange(x.shape[0], device=x.device).repeat_interleave(2)
        for e, expert in enumerate(self.experts):
            sel = ((flat == e) & keep).nonzero().squeeze(1)
            if sel.numel() == 0: continue
            t = token[sel]
            out.index_add_(0, t, expert(x[t]) * w.reshape(-1)[sel, None])
        return out
class Block(nn.Module):
    def __init__(self):
        super().__init__(); self.n = nn.LayerNorm(D); self.m = MoE()
    def forward(self, x): return x + self.m(self.n(x))
net = nn.Sequential(*[Block() for _ in range(3)], nn.Linear(D, 100)).cuda()
opt = torch.optim.Adam(net.parameters(), 1e-4)
for step in range(4):
    x = torch.randn(T, D, device="cuda"); y = torch.randint(0, 100, (T,), device="cuda")
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, loss.item())
