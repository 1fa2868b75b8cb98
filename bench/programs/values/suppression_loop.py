"""A one-stage detector: matched by overlap, and evaluated with a suppression written as a loop over what is left."""
import torch
from torch import nn
from torch.nn import functional as F


def overlap(a, b):
    low = torch.maximum(a[:, None, :2], b[None, :, :2])
    high = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = (high - low).clamp(min=0).prod(-1)
    area = lambda it: (it[:, 2:] - it[:, :2]).prod(-1)
    return inter / (area(a)[:, None] + area(b)[None] - inter + 1e-6)


def suppress(boxes, scores, threshold=0.5):
    order = scores.argsort(descending=True)
    kept = []
    while order.numel() > 0:
        first = order[0]
        kept.append(first.item())
        if order.numel() == 1:
            break
        rest = order[1:]
        order = rest[overlap(boxes[first][None], boxes[rest])[0] <= threshold]
    return torch.tensor(kept, device=boxes.device)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*(nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU()) for a, b in [(3, 32), (32, 64), (64, 128), (128, 128)]))
        self.out = nn.Conv2d(128, 5, 1)

    def forward(self, x):
        y = self.out(self.body(x)).flatten(2).transpose(1, 2)
        n = int(y.shape[1] ** 0.5)
        grid = torch.stack(torch.meshgrid(torch.arange(n), torch.arange(n), indexing="xy"), -1).reshape(-1, 2).to(x.device).float() * 16 + 8
        size = y[..., 2:4].exp() * 16
        centre = grid + y[..., :2].tanh() * 8
        return torch.cat([centre - size / 2, centre + size / 2], -1), y[..., 4]


model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
for epoch in range(2):
    model.train()
    for _ in range(4):
        images = torch.rand(8, 3, 256, 256).cuda()
        corner = torch.rand(8, 5, 2) * 180
        truth = torch.cat([corner, corner + 20 + 50 * torch.rand(8, 5, 2)], -1).cuda()
        boxes, scores = model(images)
        loss = 0
        for b, s, t in zip(boxes, scores, truth):
            iou = overlap(b.detach(), t)
            best, which = iou.max(1)
            positive = best > 0.3
            positive[iou.argmax(0)] = True
            loss = loss + F.smooth_l1_loss(b[positive], t[which[positive]]) + F.binary_cross_entropy_with_logits(s, positive.float())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        boxes, scores = model(torch.rand(4, 3, 256, 256).cuda())
        for b, s in zip(boxes, scores):
            keep = s.sigmoid() > 0.3
            found = suppress(b[keep], s[keep])
            print(len(found), b[keep][found].mean(0).tolist())
