"""Segmentation in many classes: ResNet50 with a pyramid, cross-entropy along channels over pictures, mIoU on the device."""
import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models import resnet50

CLASSES = 171


class Pyramid(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        r = resnet50()
        self.stem = nn.Sequential(r.conv1, r.bn1, r.relu, r.maxpool)
        self.stages = nn.ModuleList([r.layer1, r.layer2, r.layer3, r.layer4])
        self.sides = nn.ModuleList(nn.Conv2d(c, width, 1) for c in (256, 512, 1024, 2048))
        self.smooth = nn.ModuleList(nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(32, width), nn.ReLU()) for _ in range(4))
        self.out = nn.Sequential(nn.Dropout2d(0.1), nn.Conv2d(width, CLASSES, 1))

    def forward(self, x):
        size, found = x.shape[-2:], []
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        total, above = 0, None
        for n in (3, 2, 1, 0):
            y = self.sides[n](found[n])
            above = y if above is None else y + F.interpolate(above, size=y.shape[-2:])
            total = total + F.interpolate(self.smooth[n](above), size=found[0].shape[-2:], mode="bilinear")
        return F.interpolate(self.out(total), size=size, mode="bilinear")


torch.manual_seed(0)
model = Pyramid().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
poly = torch.optim.lr_scheduler.PolynomialLR(optimizer, 1000, 0.9)
confusion = torch.zeros(CLASSES, CLASSES, device="cuda")
for step in range(30):
    images = torch.randn(8, 3, 320, 320, device="cuda")
    labels = torch.randint(0, CLASSES, (8, 320, 320), device="cuda")
    labels[:, :20] = 255
    logits = model(images)
    loss = F.cross_entropy(logits, labels, ignore_index=255)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    poly.step()
    with torch.no_grad():
        known = labels != 255
        confusion += torch.bincount((labels[known] * CLASSES + logits.argmax(1)[known]), minlength=CLASSES**2).view(CLASSES, CLASSES)
    if step % 10 == 0:
        print(step, loss.item(), (confusion.diag() / confusion.sum(1).clamp(min=1)).mean().item())
