"""A segmentation of a whole scan: windows, stitched on the GPU."""
import torch
from torch import nn

net = nn.Sequential(nn.Conv3d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv3d(16, 14, 1)).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)


def train():
    for _ in range(20):
        x, y = torch.randn(2, 1, 32, 32, 32).cuda(), torch.randint(0, 14, (2, 32, 32, 32)).cuda()
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()


def segment(scan, size=64, step=48):
    out = torch.zeros(1, 14, *scan.shape[2:], device="cuda")
    seen = torch.zeros(1, 1, *scan.shape[2:], device="cuda")
    _, _, d, h, w = scan.shape
    for z in range(0, d - size + 1, step):
        for y in range(0, h - size + 1, step):
            for x in range(0, w - size + 1, step):
                window = (..., slice(z, z + size), slice(y, y + size), slice(x, x + size))
                out[window] += net(scan[window].cuda())
                seen[window] += 1
    return (out / seen).argmax(1).cpu()


train()
net.eval()
with torch.no_grad():
    for _ in range(2):
        print(segment(torch.randn(1, 1, 208, 208, 208)).shape)
