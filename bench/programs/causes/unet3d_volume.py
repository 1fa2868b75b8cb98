"""cause: size/activations at line 25
memory: 2GiB
why: two volumes of 128 voxels a side.
"""
import torch
from torch import nn


class Unet(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.a = nn.Sequential(nn.Conv3d(1, c, 3, padding=1), nn.BatchNorm3d(c), nn.ReLU(), nn.Conv3d(c, c, 3, padding=1), nn.BatchNorm3d(c), nn.ReLU())
        self.b = nn.Sequential(nn.MaxPool3d(2), nn.Conv3d(c, 2 * c, 3, padding=1), nn.BatchNorm3d(2 * c), nn.ReLU())
        self.up = nn.ConvTranspose3d(2 * c, c, 2, stride=2)
        self.c = nn.Sequential(nn.Conv3d(2 * c, c, 3, padding=1), nn.ReLU(), nn.Conv3d(c, 2, 1))

    def forward(self, x):
        a = self.a(x)
        return self.c(torch.cat([a, self.up(self.b(a))], 1))


net = Unet().cuda()
optimizer = torch.optim.Adam(net.parameters())
for step in range(3):
    out = net(torch.randn(2, 1, 128, 128, 128, device="cuda"))  # here
    loss = out.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
