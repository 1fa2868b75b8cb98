"""Detection with boxes: images of several sizes, 1 to 120 boxes each; each image's boxes are matched against all anchors."""
import random
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Scenes(Dataset):
    def __init__(self, n, seed):
        r = random.Random(seed)
        self.all = [(r.choice((480, 640, 800)), r.choice((640, 800, 1024, 1333)), min(120, 1 + int(r.expovariate(1 / 12)))) for _ in range(n)]
    def __len__(self): return len(self.all)
    def __getitem__(self, i):
        h, w, n = self.all[i]
        corner = torch.rand(n, 2) * torch.tensor([w * 0.8, h * 0.8])
        return torch.zeros(3, h, w), {"boxes": torch.cat([corner, corner + 20 + torch.rand(n, 2) * 60], 1), "labels": torch.randint(0, 20, (n,))}

def collate(rows):
    h, w = max(x.shape[1] for x, _ in rows), max(x.shape[2] for x, _ in rows)
    out = torch.zeros(len(rows), 3, -(-h // 32) * 32, -(-w // 32) * 32)
    for i, (x, _) in enumerate(rows): out[i, :, : x.shape[1], : x.shape[2]] = x
    return out, [t for _, t in rows]

class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        def stage(a, b, s): return nn.Sequential(nn.Conv2d(a, b, 3, s, 1), nn.GroupNorm(8, b), nn.ReLU(), nn.Conv2d(b, b, 3, 1, 1), nn.GroupNorm(8, b), nn.ReLU())
        self.body = nn.Sequential(stage(3, 64, 2), stage(64, 128, 2), stage(128, 256, 2), stage(256, 256, 1))
        self.classes, self.boxes = nn.Conv2d(256, 9 * 20, 1), nn.Conv2d(256, 9 * 4, 1)
    def forward(self, x):
        f = self.body(x)
        n = x.shape[0]
        return self.classes(f).permute(0, 2, 3, 1).reshape(n, -1, 20), self.boxes(f).permute(0, 2, 3, 1).reshape(n, -1, 4)

def iou(a, b):
    lo, hi = torch.max(a[:, None, :2], b[None, :, :2]), torch.min(a[:, None, 2:], b[None, :, 2:])
    inter = (hi - lo).clamp(min=0).prod(2)
    area = lambda it: (it[:, 2:] - it[:, :2]).prod(1)
    return inter / (area(a)[:, None] + area(b)[None] - inter + 1e-6)

def loss_of(classes, boxes, targets):
    loss = 0.0
    for c, b, t in zip(classes, boxes, targets):
        best = iou(b, t["boxes"].cuda())
        _, which = best.max(1)
        loss = loss + nn.functional.cross_entropy(c, t["labels"].cuda()[which]) + nn.functional.l1_loss(b, t["boxes"].cuda()[which]) * 0.01
    return loss / len(targets)

net = Detector().cuda()
opt = torch.optim.AdamW(net.parameters(), 1e-4)
train = DataLoader(Scenes(2000, 0), 8, shuffle=True, collate_fn=collate, num_workers=2)
valid = DataLoader(Scenes(64, 1), 8, collate_fn=collate)
step = 0
for epoch in range(2):
    for x, t in train:
        loss = loss_of(*net(x.cuda()), t)
        opt.zero_grad(); loss.backward(); opt.step(); step += 1
        if step % 100 == 0:
            net.eval()
            with torch.no_grad():
                print(step, sum(loss_of(*net(x.cuda()), t).item() for x, t in valid))
            net.train()
