"""cause: size/one-allocation at line 30
also right: inputs/dynamic-shapes
also right: line 55
memory: 3GiB
why: anchors are matched with true boxes by all overlaps; the seventh picture shows a crowd of 3,000.
"""
import torch
from torch import nn
from torchvision.ops import box_iou


class Detector(nn.Module):
    def __init__(self, width=32, anchors=9):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1), nn.ReLU()
        )
        self.scores = nn.Conv2d(width, anchors, 1)

    def forward(self, images):
        return self.scores(self.body(images)).flatten(1)


class Matcher:
    def __init__(self, high=0.5, low=0.4):
        self.high, self.low = high, low

    def __call__(self, anchors, boxes):
        with torch.no_grad():
            overlaps = box_iou(anchors, boxes)  # here
            best, index = overlaps.max(1)
            labels = torch.zeros_like(best)
            labels[best >= self.high] = 1
            return labels


def all_anchors(size, stride=8):
    centres = torch.arange(0, size, stride) + stride / 2
    y, x = torch.meshgrid(centres, centres, indexing="ij")
    corners = []
    for scale in (32, 64, 128):
        for ratio in (0.5, 1.0, 2.0):
            w, h = scale * ratio**0.5, scale / ratio**0.5
            corners.append(torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], -1).view(-1, 4))
    return torch.cat(corners)


torch.manual_seed(0)
net, match = Detector().cuda(), Matcher()
anchors = all_anchors(928).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step, n in enumerate([12, 30, 7, 41, 19, 25, 3000, 16, 9]):
    corners = torch.rand(n, 2) * 800
    boxes = torch.cat([corners, corners + torch.rand(n, 2) * 100 + 4], 1).cuda()
    labels = match(anchors, boxes)
    scores = net(torch.rand(1, 3, 928, 928, device="cuda"))
    loss = nn.functional.binary_cross_entropy_with_logits(scores[0], labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
