"""Segmentation of medical slices: workers make pictures and masks, a mixed loss, ragged last batch, a validation with larger batches."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Slices(Dataset):
    def __init__(self, n, seed):
        self.n, self.seed = n, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed + i)
        slice_ = torch.randn(4, 384, 384, generator=g)
        y, x = torch.meshgrid(torch.arange(384), torch.arange(384), indexing="ij")
        cy, cx, r = (torch.randint(50, 300, (3,), generator=g)).tolist()
        mask = ((y - cy) ** 2 + (x - cx) ** 2 < (r // 3) ** 2).long() + (slice_[0] > 2).long() * 2
        return slice_, mask.clamp_max(3)


def block(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.InstanceNorm2d(b), nn.LeakyReLU(0.01), nn.Conv2d(b, b, 3, padding=1), nn.InstanceNorm2d(b), nn.LeakyReLU(0.01))


class UNet(nn.Module):
    def __init__(self, widths=(48, 96, 192, 384)):
        super().__init__()
        self.down = nn.ModuleList(block(a, b) for a, b in zip((4, *widths), widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths, widths[1:]))
        self.merge = nn.ModuleList(block(2 * a, a) for a in widths[:-1])
        self.out = nn.Conv2d(widths[0], 4, 1)

    def forward(self, x):
        kept = []
        for i, it in enumerate(self.down):
            x = it(x)
            if i < len(self.down) - 1:
                kept.append(x)
                x = nn.functional.max_pool2d(x, 2)
        for up, merge, skip in zip(reversed(self.up), reversed(self.merge), reversed(kept)):
            x = merge(torch.cat([up(x), skip], 1))
        return self.out(x)


def dice(logits, mask):
    p = logits.softmax(1)
    one = nn.functional.one_hot(mask, 4).permute(0, 3, 1, 2).float()
    return 1 - (2 * (p * one).sum((2, 3)) + 1).div(p.sum((2, 3)) + one.sum((2, 3)) + 1).mean()


def main():
    torch.manual_seed(0)
    model = UNet().cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.99, nesterov=True)
    train = DataLoader(Slices(330, 0), 16, shuffle=True, num_workers=4, pin_memory=True)
    val = DataLoader(Slices(40, 10_000), 20, num_workers=2)
    for epoch in range(3):
        model.train()
        for images, masks in train:
            logits = model(images.cuda(non_blocking=True))
            masks = masks.cuda(non_blocking=True)
            loss = nn.functional.cross_entropy(logits, masks) + dice(logits, masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.inference_mode():
            scores = [float(1 - dice(model(images.cuda()), masks.cuda())) for images, masks in val]
        print(epoch, float(loss), sum(scores) / len(scores))


if __name__ == "__main__":
    main()
