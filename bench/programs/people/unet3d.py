"""Organs in CT volumes: a 3-D U-Net on patches, Dice and cross-entropy, deep supervision; a sliding window for validation."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def conv(i, o):
    return nn.Sequential(
        nn.Conv3d(i, o, 3, padding=1, bias=False), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(0.01, inplace=True),
        nn.Conv3d(o, o, 3, padding=1, bias=False), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(0.01, inplace=True),
    )


class UNet3D(nn.Module):
    def __init__(self, classes=14, widths=(32, 64, 128, 256, 320)):
        super().__init__()
        self.enc = nn.ModuleList(conv(i, o) for i, o in zip((1,) + widths, widths))
        self.up = nn.ModuleList(nn.ConvTranspose3d(i, o, 2, 2) for i, o in zip(widths[:0:-1], widths[-2::-1]))
        self.dec = nn.ModuleList(conv(2 * o, o) for o in widths[-2::-1])
        self.heads = nn.ModuleList(nn.Conv3d(o, classes, 1) for o in widths[-2::-1])

    def forward(self, x):
        skips = []
        for i, block in enumerate(self.enc):
            x = block(x if i == 0 else F.max_pool3d(x, 2))
            skips.append(x)
        skips.pop()
        outs = []
        for up, dec, head in zip(self.up, self.dec, self.heads):
            x = dec(torch.cat([up(x), skips.pop()], 1))
            outs.append(head(x))
        return outs[::-1] if self.training else outs[-1]


def dice_ce(logits, target):
    ce = F.cross_entropy(logits, target)
    p = logits.softmax(1)
    t = F.one_hot(target, logits.size(1)).permute(0, 4, 1, 2, 3).float()
    inter, total = (p * t).sum((2, 3, 4)), (p + t).sum((2, 3, 4))
    return ce + 1 - ((2 * inter + 1e-5) / (total + 1e-5)).mean()


def validate(model, volume, patch=96):
    model.eval()
    out = torch.zeros(14, *volume.shape[-3:])
    with torch.no_grad():
        for z in range(0, volume.size(-3), patch):
            for y in range(0, volume.size(-2), patch):
                piece = volume[..., z : z + patch, y : y + patch, :patch].cuda()
                out[:, z : z + patch, y : y + patch, :patch] = model(piece)[0].cpu()
    model.train()
    return out.argmax(0)


net = UNet3D().cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.99, nesterov=True, weight_decay=3e-5)
poly = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=100, power=0.9)
for it in range(16):
    ct, seg = torch.randn(2, 1, 96, 96, 96).cuda(), torch.randint(14, (2, 96, 96, 96)).cuda()
    optimizer.zero_grad()
    outs = net(ct)
    loss = sum(0.5**i * dice_ce(o, seg[:, :: 2**i, :: 2**i, :: 2**i]) for i, o in enumerate(outs))
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 12)
    optimizer.step()
    poly.step()
    if it == 11:
        validate(net, torch.randn(1, 1, 192, 192, 96))
