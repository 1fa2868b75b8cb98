"""An anchor-free detector with a pyramid, and another size of images every few batches."""
import random

import torch
import torch.nn.functional as F
import torchvision
from torch import nn


def conv(i, o, k=3, s=1):
    return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o), nn.SiLU(inplace=True))


class Detector(nn.Module):
    def __init__(self, classes=80):
        super().__init__()
        trunk = torchvision.models.resnet34(weights=None)
        self.stem = nn.Sequential(trunk.conv1, trunk.bn1, trunk.relu, trunk.maxpool, trunk.layer1)
        self.stages = nn.ModuleList([trunk.layer2, trunk.layer3, trunk.layer4])
        self.lateral = nn.ModuleList([conv(c, 128, 1) for c in (128, 256, 512)])
        self.smooth = nn.ModuleList([conv(128, 128) for _ in range(3)])
        self.boxes = nn.Sequential(conv(128, 128), conv(128, 128), nn.Conv2d(128, 5, 1))
        self.classes = nn.Sequential(conv(128, 128), conv(128, 128), nn.Conv2d(128, classes, 1))

    def forward(self, x):
        x, levels = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            levels.append(x)
        levels = [lateral(it) for lateral, it in zip(self.lateral, levels)]
        for n in (1, 0):
            levels[n] = levels[n] + F.interpolate(levels[n + 1], size=levels[n].shape[-2:], mode="nearest")
        levels = [smooth(it) for smooth, it in zip(self.smooth, levels)]
        return [(self.boxes(it), self.classes(it)) for it in levels]


def targets_for(outputs, boxes, labels):
    """Each box to the level of its size, at the cell of its middle."""
    res = []
    for level, (reg, cls) in enumerate(outputs):
        stride = 8 << level
        b, c, h, w = cls.shape
        wanted, hot = torch.zeros(b, 5, h, w, device=cls.device), torch.zeros(b, c, h, w, device=cls.device)
        middle = ((boxes[..., :2] + boxes[..., 2:]) / 2 / stride).long()
        size = (boxes[..., 2:] - boxes[..., :2]).amax(-1)
        mine = (size >= 64 * level) & ((size < 64 * (level + 1)) | (level == 2))
        image, which = mine.nonzero(as_tuple=True)
        x, y = middle[image, which, 0].clamp(max=w - 1), middle[image, which, 1].clamp(max=h - 1)
        wanted[image, :4, y, x], wanted[image, 4, y, x] = boxes[image, which] / stride, 1
        hot[image, labels[image, which], y, x] = 1
        res.append((wanted, hot))
    return res


torch.manual_seed(0)
random.seed(0)
model = Detector().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.937, nesterov=True)
ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))
size = 512
for step in range(60):
    if step % 5 == 0:
        size = random.choice([448, 512, 576, 640])
    images = torch.rand(20, 3, size, size).cuda()
    corners = torch.rand(20, 12, 2, device="cuda") * size * 0.7
    boxes = torch.cat([corners, (corners + 8 + torch.rand(20, 12, 2, device="cuda") * size * 0.3)], -1)
    labels = torch.randint(0, 80, (20, 12), device="cuda")
    outputs = model(images)
    loss = 0
    for (reg, cls), (wanted, hot) in zip(outputs, targets_for(outputs, boxes, labels)):
        there = wanted[:, 4:]
        loss = loss + torchvision.ops.sigmoid_focal_loss(cls, hot, reduction="sum") / 100
        loss = loss + (F.smooth_l1_loss(reg[:, :4], wanted[:, :4], reduction="none") * there).sum() / 100
        loss = loss + F.binary_cross_entropy_with_logits(reg[:, 4:], there)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    optimizer.step()
    ema.update_parameters(model)
    if step % 20 == 0:
        print(step, size, float(loss))
