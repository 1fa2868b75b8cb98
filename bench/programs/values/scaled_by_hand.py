"""Half precision with master weights: the loss scale is halved on overflow and doubled after a while, state made on the first good step."""
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(*[m for i in range(8) for m in (nn.Linear(2048, 2048), nn.GELU())], nn.Linear(2048, 1000)).cuda().half()
master = [p.detach().float().clone() for p in net.parameters()]
state = None; scale, good, skipped = 2.0 ** 15, 0, 0
for step in range(8):
    x = torch.randn(1024, 2048, device="cuda", dtype=torch.half); y = torch.randint(0, 1000, (1024,), device="cuda")
    loss = nn.functional.cross_entropy(net(x).float(), y)
    (loss * scale).backward()
    overflow = any(not torch.isfinite(p.grad).all() for p in net.parameters())
    if overflow:
        scale /= 2; skipped += 1; good = 0
        for p in net.parameters(): p.grad = None
        continue
    if state is None: state = [(torch.zeros_like(m), torch.zeros_like(m)) for m in master]
    with torch.no_grad():
        for p, m, (a, b) in zip(net.parameters(), master, state):
            g = p.grad.float() / scale
            a.mul_(0.9).add_(g, alpha=0.1); b.mul_(0.99).addcmul_(g, g, value=0.01)
            m.sub_(1e-4 * a / (b.sqrt() + 1e-8)); p.copy_(m); p.grad = None
    good += 1
    if good % 4 == 0: scale *= 2
print(skipped, scale, loss.item())
