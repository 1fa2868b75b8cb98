"""Contrast against a queue: positives have the same label, negatives are mined by similarity, the queue wraps around."""
import torch, torchvision
from torch import nn
torch.manual_seed(0)
Q, D, B, C = 8192, 128, 128, 20
net = torchvision.models.resnet18(num_classes=D).cuda()
opt = torch.optim.SGD(net.parameters(), 0.03, momentum=0.9)
queue = nn.functional.normalize(torch.randn(Q, D, device="cuda"), dim=1); owner = torch.randint(0, C, (Q,), device="cuda"); ptr = torch.zeros(1, dtype=torch.long, device="cuda")
for step in range(5):
    x = torch.randn(B, 3, 128, 128, device="cuda"); y = torch.randint(0, C, (B,), device="cuda")
    z = nn.functional.normalize(net(x), dim=1)
    sim = z @ queue.t() / 0.1
    same = y[:, None] == owner[None]
    pos = sim[same]
    neg = sim.masked_fill(same, -1e4)
    hard = neg.topk(256, 1).values
    rows = same.nonzero()[:, 0]
    loss = (torch.logsumexp(torch.cat([pos[:, None], hard[rows]], 1), 1) - pos).mean()
    pairs = (y[:, None] == y[None]).triu(1).nonzero()
    loss = loss + (z[pairs[:, 0]] - z[pairs[:, 1]]).pow(2).sum(1).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    at = int(ptr)
    queue[at:at + B] = z.detach(); owner[at:at + B] = y; ptr[0] = (at + B) % Q
    print(step, len(pos), len(pairs), loss.item())
