"""A single-shot detector: anchors matched with boxes by overlap, losses at positives, hard negatives three to one."""
import math, torch, torchvision
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
B, K = 8, 21
body = torchvision.models.resnet18(weights=None)
trunk = nn.Sequential(*list(body.children())[:-2])
class SSD(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = trunk
        self.extra = nn.ModuleList([nn.Conv2d(512, 256, 3, 2, 1), nn.Conv2d(256, 256, 3, 2, 1)])
        c = [512, 256, 256]
        self.cls = nn.ModuleList([nn.Conv2d(i, 6 * K, 3, padding=1) for i in c])
        self.box = nn.ModuleList([nn.Conv2d(i, 24, 3, padding=1) for i in c])
    def forward(self, x):
        f = [self.trunk(x)]
        for e in self.extra: f.append(F.relu(e(f[-1])))
        flat = lambda t, n: t.permute(0, 2, 3, 1).reshape(t.shape[0], -1, n)
        return torch.cat([flat(m(t), K) for m, t in zip(self.cls, f)], 1), torch.cat([flat(m(t), 4) for m, t in zip(self.box, f)], 1)
def anchors(size):
    rows = []
    for n, s in zip((size // 32, size // 64, size // 128), (0.12, 0.35, 0.7)):
        g = (torch.arange(n, device="cuda") + 0.5) / n
        cy, cx = torch.meshgrid(g, g, indexing="ij")
        for r in (0.5, 1.0, 2.0):
            for k in (1.0, 1.4):
                w, h = s * k * math.sqrt(r), s * k / math.sqrt(r)
                rows.append(torch.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], -1).reshape(-1, 4))
    return torch.cat(rows).clamp(0, 1)
net = SSD().cuda(); opt = torch.optim.SGD(net.parameters(), 1e-3, momentum=0.9); A = anchors(384)
for step in range(4):
    x = torch.randn(B, 3, 384, 384, device="cuda")
    logits, deltas = net(x)
    target = torch.zeros(B, len(A), dtype=torch.long, device="cuda"); regress = []
    for b in range(B):
        n = 3 + b % 4
        xy = torch.rand(n, 2) * 0.6; wh = 0.1 + torch.rand(n, 2) * 0.3
        boxes = torch.cat([xy, xy + wh], 1).cuda(); labels = torch.randint(1, K, (n,)).cuda()
        iou = torchvision.ops.box_iou(A, boxes)
        best, which = iou.max(1)
        best_anchor = iou.argmax(0)
        which[best_anchor] = torch.arange(n, device="cuda"); best[best_anchor] = 2.0
        pos = best > 0.5
        target[b, pos] = labels[which[pos]]
        regress.append(F.smooth_l1_loss(deltas[b][pos], boxes[which[pos]] - A[pos], reduction="sum"))
    pos = target > 0
    n_pos = pos.sum().clamp(min=1)
    ce = F.cross_entropy(logits.reshape(-1, K), target.reshape(-1), reduction="none").view(B, -1)
    neg = ce.masked_fill(pos, 0)
    rank = neg.sort(1, descending=True)[1].sort(1)[1]
    hard = rank < (3 * pos.sum(1, keepdim=True)).clamp(max=len(A) - 1)
    loss = (ce[pos | hard].sum() + sum(regress)) / n_pos
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, int(n_pos), loss.item())
