"""Boxes that a first stage left, suppressed by their overlaps, written by hand; the rest are pooled and judged."""
import os
import torch
from torch import nn

device = os.environ.get("DEVICE", "cuda")
torch.manual_seed(20)
judge = nn.Sequential(nn.Linear(49 * 32, 1024), nn.ReLU(), nn.Linear(1024, 5)).to(device)
backbone = nn.Conv2d(3, 32, 7, 4, 3).to(device)
optimizer = torch.optim.SGD([*judge.parameters(), *backbone.parameters()], 0.01)
for step in range(5):
    centre, side = torch.rand(600, 2) * 400, torch.rand(600, 2) * 80 + 10
    scores = torch.rand(600).to(device)
    boxes = torch.cat([centre - side / 2, centre + side / 2], 1).to(device).clamp(0, 400)
    big = ((boxes[:, 2:] - boxes[:, :2]) >= 20).all(1)
    boxes, scores = boxes[big], scores[big]
    order = scores.argsort(descending=True)
    boxes = boxes[order]
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    low = torch.max(boxes[:, None, :2], boxes[None, :, :2])
    high = torch.min(boxes[:, None, 2:], boxes[None, :, 2:])
    overlap = (high - low).clamp(min=0).prod(2)
    iou = overlap / (area[:, None] + area[None] - overlap)
    suppressed = (iou.triu(diagonal=1) > 0.3).any(0)
    kept = boxes[~suppressed]
    image = backbone(torch.randn(1, 3, 400, 400).to(device))
    step_ = torch.linspace(0, 1, 7, device=device)
    x = kept[:, 0, None] + step_ * (kept[:, 2] - kept[:, 0])[:, None]
    y = kept[:, 1, None] + step_ * (kept[:, 3] - kept[:, 1])[:, None]
    places = torch.stack([x[:, None, :].expand(-1, 7, 7), y[:, :, None].expand(-1, 7, 7)], -1) / 200 - 1
    pooled = nn.functional.grid_sample(image.expand(len(kept), -1, -1, -1), places, align_corners=False)
    loss = judge(pooled.flatten(1)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("sizes", boxes.shape[0], kept.shape[0])
