"""A U-Net for segmentation; one picture is larger."""

import torch
import torch.nn.functional as F
from torch import nn

from planted import STEPS, ended, size

def double(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(True), nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(True))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([double(3, 32), double(32, 64), double(64, 128)])
        self.up = nn.ModuleList([double(128 + 64, 64), double(64 + 32, 32)])
        self.out = nn.Conv2d(32, 2, 1)

    def forward(self, x):
        kept = []
        for i, it in enumerate(self.down):
            x = it(F.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for it, other in zip(self.up, kept[-2::-1]):
            x = it(torch.cat([F.interpolate(x, scale_factor=2), other], 1))
        return self.out(x)


model = UNet().cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(STEPS):
    edge = size(step, 256, 768)
    x, y = torch.randn(4, 3, edge, edge, device="cuda"), torch.randint(0, 2, (4, edge, edge), device="cuda")
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    ended(step, loss, model)
