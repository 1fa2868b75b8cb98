"""Semantic segmentation: photos of many sizes, trained small, evaluated whole and mirrored at their own size."""
import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = 150


class Photos(Dataset):
    def __init__(self, n, low, high, seed):
        g = torch.Generator().manual_seed(seed)
        self.sizes = torch.randint(low, high + 1, (n, 2), generator=g).tolist()

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, i):
        h, w = self.sizes[i]
        coarse = torch.randint(CLASSES, (1, 1, h // 32 + 1, w // 32 + 1)).float()
        return torch.rand(3, h, w), F.interpolate(coarse, (h, w))[0, 0].long()


def pad_to_32(items):
    h, w = (-(-max(x.shape[d] for x, _ in items) // 32) * 32 for d in (1, 2))
    photos = torch.stack([F.pad(x, (0, w - x.shape[2], 0, h - x.shape[1])) for x, _ in items])
    labels = torch.stack([F.pad(y, (0, w - y.shape[1], 0, h - y.shape[0]), value=255) for _, y in items])
    return photos, labels


def double(i, o):
    layers = []
    for c in (i, o):
        layers += [nn.Conv2d(c, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    def __init__(self, width, depth=4):
        super().__init__()
        widths = [width * 2**i for i in range(depth + 1)]
        self.stem = double(3, width)
        self.down = nn.ModuleList(double(a, b) for a, b in zip(widths, widths[1:]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in zip(widths, widths[1:]))
        self.merge = nn.ModuleList(double(2 * a, a) for a in widths[:-1])
        self.out = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x):
        x = F.avg_pool2d(x, 2)  # the stem works at half the size
        kept = [self.stem(x)]
        for down in self.down:
            kept.append(down(F.max_pool2d(kept[-1], 2)))
        x = kept.pop()
        for up, merge in zip(reversed(self.up), reversed(self.merge)):
            x = merge(torch.cat([up(x), kept.pop()], dim=1))
        return self.out(x)


def iou(model, loader, device):
    model.eval()
    both, either = torch.zeros(CLASSES, device=device), torch.zeros(CLASSES, device=device)
    for photos, labels in loader:
        photos, labels = photos.to(device), labels.to(device)
        with torch.no_grad(), torch.autocast(device, dtype=torch.bfloat16):
            full = lambda x: F.interpolate(model(x).float(), size=photos.shape[2:], mode="bilinear", align_corners=False).softmax(1)
            chances = (full(photos) + full(photos.flip(3)).flip(3)) / 2
        guess = chances.argmax(1)
        same = guess[guess == labels]
        both += torch.bincount(same, minlength=CLASSES)
        either += torch.bincount(guess[labels != 255], minlength=CLASSES) + torch.bincount(labels[labels != 255], minlength=CLASSES)
    model.train()
    return (2 * both / either.clamp(min=1)).mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--eval-every", type=int, default=40)
    ap.add_argument("--train-sizes", type=int, nargs=2, default=(192, 448))
    ap.add_argument("--eval-sizes", type=int, nargs=2, default=(768, 2048))
    ap.add_argument("--eval-photos", type=int, default=16)
    ap.add_argument("--width", type=int, default=48)
    ap.add_argument("--device", default="cuda")
    a = ap.parse_args()
    torch.manual_seed(5)
    model = UNet(a.width).to(a.device)
    train = DataLoader(Photos(160 * a.batch_size, *a.train_sizes, 1), batch_size=a.batch_size, shuffle=True, collate_fn=pad_to_32, drop_last=True)
    valid = DataLoader(Photos(a.eval_photos, *a.eval_sizes, 2), batch_size=1, collate_fn=pad_to_32)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    while step < a.steps:
        for photos, labels in train:
            with torch.autocast(a.device, dtype=torch.bfloat16):
                logits = F.interpolate(model(photos.to(a.device)), scale_factor=2.0, mode="bilinear")
            loss = F.cross_entropy(logits.float(), labels.to(a.device), ignore_index=255)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % a.eval_every == 0:
                print(f"step {step} loss {loss.item():.3f} iou {iou(model, valid, a.device):.4f}")
            if step >= a.steps:
                break
    print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))


if __name__ == "__main__":
    main()
