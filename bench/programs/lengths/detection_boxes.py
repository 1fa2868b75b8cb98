"""One-stage detection: pictures of every shape, from no box to a hundred, anchors matched by overlap; evaluation with suppression of overlapping boxes."""
import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = 20


class Pictures(Dataset):
    def __init__(self, n, short, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.short, self.shapes = short, torch.rand(n, 3, generator=self.gen).tolist()

    def __len__(self):
        return len(self.shapes)

    def __getitem__(self, i):
        ratio, turned, boxes = self.shapes[i]
        long, n = int(self.short * (1 + 0.6 * ratio)), int(100 * boxes**3)
        h, w = (long, self.short) if turned < 0.3 else (self.short, long)
        corner = torch.rand(n, 2, generator=self.gen) * torch.tensor([w * 0.8, h * 0.8])
        size = (torch.rand(n, 2, generator=self.gen) * 0.4 + 0.03) * self.short
        picture = (torch.rand(3, h, 1, generator=self.gen) + torch.rand(3, 1, w, generator=self.gen)) / 2
        return picture, torch.cat([corner, corner + size], 1), torch.randint(CLASSES, (n,), generator=self.gen)


def collate(items):
    pictures, boxes, kinds = zip(*items)
    h, w = (-(-max(x.shape[d] for x in pictures) // 32) * 32 for d in (1, 2))
    return torch.stack([F.pad(x, (0, w - x.shape[2], 0, h - x.shape[1])) for x in pictures]), boxes, kinds


def conv(i, o, k=3, s=1):
    return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class Residual(nn.Module):
    def __init__(self, i, o, s):
        super().__init__()
        self.body = nn.Sequential(conv(i, o // 4, 1), conv(o // 4, o // 4, 3, s), *conv(o // 4, o, 1)[:2])
        self.skip = nn.Identity() if i == o and s == 1 else nn.Conv2d(i, o, 1, s)

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


class Detector(nn.Module):
    def __init__(self, width):
        super().__init__()
        stage = lambda i, o, s, n: nn.Sequential(Residual(i, o, s), *(Residual(o, o, 1) for _ in range(n - 1)))
        self.low = nn.Sequential(conv(3, width, 7, 2), nn.MaxPool2d(3, 2, 1), stage(width, 4 * width, 1, 3), stage(4 * width, 8 * width, 2, 4))
        self.mid, self.high = stage(8 * width, 16 * width, 2, 4), stage(16 * width, 32 * width, 2, 2)
        self.sides = nn.ModuleList(nn.Conv2d(c * width, 128, 1) for c in (32, 16, 8))
        self.head = nn.Sequential(conv(128, 128), conv(128, 128), nn.Conv2d(128, CLASSES + 4, 3, padding=1))
        nn.init.constant_(self.head[-1].bias, -4.0)

    def forward(self, x):
        low = self.low(x)
        mid = self.mid(low)
        outs, anchors, above = [], [], 0
        for side, f, stride in zip(self.sides, (self.high(mid), mid, low), (32, 16, 8)):
            above = side(f) if stride == 32 else side(f) + F.interpolate(above, size=f.shape[2:])
            outs.append(self.head(above).flatten(2).transpose(1, 2))
            y, x = torch.meshgrid(*(torch.arange(n, device=f.device) for n in f.shape[2:]), indexing="ij")
            middle = (torch.stack([x, y], -1).flatten(0, 1) + 0.5) * stride
            anchors.append(torch.cat([middle - 2 * stride, middle + 2 * stride], 1))
        out, anchors = torch.cat(outs, 1).float(), torch.cat(anchors)
        return out[..., :CLASSES], anchors + out[..., CLASSES:].tanh() * 64, anchors


def overlap(a, b):
    inner = (torch.minimum(a[:, None, 2:], b[:, 2:]) - torch.maximum(a[:, None, :2], b[:, :2])).clamp(min=0).prod(-1)
    return inner / ((a[:, 2:] - a[:, :2]).prod(-1)[:, None] + (b[:, 2:] - b[:, :2]).prod(-1) - inner).clamp(min=1)


def loss_of(scores, boxes, anchors, truth, kinds):
    loss = scores.sum() * 0
    for score, box, true, kind in zip(scores, boxes, truth, kinds):
        target = torch.zeros_like(score)
        if len(true):
            best, which = overlap(anchors, true).max(1)
            found = best > 0.3
            target[found, kind[which[found]]] = 1
            loss = loss + F.smooth_l1_loss(box[found], true[which[found]], reduction="sum") / (64 * found.sum().clamp(min=1))
        loss = loss + F.binary_cross_entropy_with_logits(score, target, reduction="sum") / max(len(true), 1)
    return loss / len(scores)


@torch.no_grad()
def recall(model, loader, device):
    model.eval()
    hit = total = 0
    for pictures, truth, _ in loader:
        with torch.autocast(device, dtype=torch.bfloat16):
            scores, boxes, _ = model(pictures.to(device))
        for score, box, true in zip(scores, boxes, truth):
            order = score.amax(1).topk(min(1000, len(box))).indices
            box = box[order]
            covered = (overlap(box, box).triu(1) > 0.6).any(0)  # by a better one
            hit += (overlap(true.to(device), box[~covered]) > 0.5).any(1).sum().item()
            total += len(true)
    model.train()
    return hit / max(total, 1)


ap = argparse.ArgumentParser()
for name, value in (("steps", 200), ("batch-size", 6), ("eval-every", 50), ("short", 640), ("width", 64)):
    ap.add_argument("--" + name, type=int, default=value)
ap.add_argument("--device", default="cuda")
a = ap.parse_args()
torch.manual_seed(0)
model = Detector(a.width).to(a.device)
train = DataLoader(Pictures(200 * a.batch_size, a.short, 1), a.batch_size, shuffle=True, collate_fn=collate)
valid = DataLoader(Pictures(4 * a.batch_size, a.short, 2), a.batch_size, collate_fn=collate)
opt = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9, weight_decay=1e-4)
step = 0
while step < a.steps:
    for pictures, truth, kinds in train:
        with torch.autocast(a.device, dtype=torch.bfloat16):
            scores, boxes, anchors = model(pictures.to(a.device))
        loss = loss_of(scores, boxes, anchors, [t.to(a.device) for t in truth], [k.to(a.device) for k in kinds])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10)
        opt.step()
        step += 1
        if step % a.eval_every == 0:
            print(f"step {step} loss {loss.item():.2f} recall {recall(model, valid, a.device):.3f}")
        if step >= a.steps:
            break
print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))
