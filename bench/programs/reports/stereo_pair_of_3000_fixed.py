"""Stereo: training needs 3 GB, one test pair of 3000 x 3000 says "out of memory" (PSMNet#91)."""
import torch
from torch import nn


def conv3(a, b, stride=1):
    return nn.Sequential(nn.Conv3d(a, b, 3, stride, 1, bias=False), nn.BatchNorm3d(b), nn.ReLU(inplace=True))


class Stereo(nn.Module):
    def __init__(self, maxdisp=192):
        super().__init__()
        self.maxdisp = maxdisp
        self.features = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(32, 32, 3, 1, 1))
        self.body = nn.Sequential(conv3(64, 32), conv3(32, 32), nn.Conv3d(32, 1, 3, 1, 1, bias=False))

    def forward(self, left, right):
        a, b = self.features(left), self.features(right)
        cost = a.new_zeros(len(a), 64, self.maxdisp // 4, *a.shape[-2:])
        for i in range(self.maxdisp // 4):
            cost[:, :32, i, :, i:] = a[..., i:]
            cost[:, 32:, i, :, i:] = b[..., : b.shape[-1] - i]
        cost = nn.functional.interpolate(self.body(cost), (self.maxdisp, *left.shape[-2:]), mode="trilinear")
        p = cost.squeeze(1).softmax(1)
        return (p * torch.arange(self.maxdisp, device=p.device)[:, None, None]).sum(1)


net = Stereo().cuda()
optimizer = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(500):
    left, right = torch.randn(2, 2, 3, 256, 512, device="cuda")
    truth = 192 * torch.rand(2, 256, 512, device="cuda")
    loss = nn.functional.smooth_l1_loss(net(left, right), truth)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

net.eval()
with torch.no_grad():
    for pair in range(10):
        left, right = torch.randn(2, 1, 3, 3008, 3008, device="cuda")
        left, right = (nn.functional.interpolate(x, scale_factor=0.5, mode="area") for x in (left, right))
        disparity = 2 * nn.functional.interpolate(net(left, right)[:, None], scale_factor=2.0)[:, 0]
        print(pair, disparity.mean().item())
