"""A U-Net for segmentation with BatchNorm and bilinear upsampling; a loader with two workers and pinned memory; dice and cross-entropy; GradScaler."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Slides(Dataset):
    def __len__(self):
        return 240

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.rand(3, 384, 384, generator=g), torch.randint(0, 5, (384, 384), generator=g)


def double(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
        nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, classes=5, widths=(48, 96, 192, 384, 768)):
        super().__init__()
        self.down = nn.ModuleList([double(i, o) for i, o in zip((3, *widths), widths)])
        self.up = nn.ModuleList([double(a + b, a) for a, b in zip(widths[-2::-1], widths[:0:-1])])
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x):
        kept = []
        for n, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if n else x)
            kept.append(x)
        x = kept.pop()
        for block in self.up:
            x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
            x = block(torch.cat([kept.pop(), x], 1))
        return self.head(x)


def dice(logits, masks):
    p, t = logits.float().softmax(1), F.one_hot(masks, 5).permute(0, 3, 1, 2).float()
    return 1 - (2 * (p * t).sum((2, 3)) + 1).div((p + t).sum((2, 3)) + 1).mean()


def main():
    torch.manual_seed(0)
    net = UNet().cuda()
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-5, weight_decay=1e-8, momentum=0.999)
    scaler = torch.amp.GradScaler("cuda")
    for epoch in range(2):
        for images, masks in DataLoader(Slides(), 10, shuffle=True, num_workers=2, pin_memory=True, drop_last=True):
            images, masks = images.cuda(non_blocking=True), masks.cuda(non_blocking=True)
            with torch.autocast("cuda", torch.float16):
                logits = net(images)
                loss = F.cross_entropy(logits, masks) + dice(logits, masks)
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
