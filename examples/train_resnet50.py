"""Train a ResNet-50 on folders of images, one folder a class.

    python train_resnet50.py --data ~/imagenet --batch-size 64 --amp

Without --data it trains on made-up images, which is enough to see how fast a machine is.
"""

import argparse
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=None, help="has the folders train and val")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("--amp", action="store_true", help="mixed precision (float16 with loss scaling)")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--fake-images", type=int, default=2048, help="how many, without --data")
    parser.add_argument("--print-every", type=int, default=10)
    parser.add_argument("--checkpoint", type=Path, default=None)
    return parser.parse_args()


def image_sets(args):
    normalize = transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    train = transforms.Compose(
        [
            transforms.RandomResizedCrop(args.image_size),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            normalize,
        ]
    )
    val = transforms.Compose(
        [
            transforms.Resize(int(args.image_size * 256 / 224)),
            transforms.CenterCrop(args.image_size),
            transforms.ToTensor(),
            normalize,
        ]
    )
    if args.data:
        return datasets.ImageFolder(args.data / "train", train), datasets.ImageFolder(args.data / "val", val)
    size = (3, args.image_size, args.image_size)
    return (
        datasets.FakeData(args.fake_images, size, 1000, train),
        datasets.FakeData(max(args.batch_size, args.fake_images // 8), size, 1000, val),
    )


class Average:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def add(self, value, n):
        self.sum += value * n
        self.count += n

    @property
    def value(self):
        return self.sum / max(1, self.count)


def accuracy(output, target):
    return (output.argmax(dim=1) == target).float().mean().item() * 100


def train(args, loader, model, criterion, optimizer, scaler, epoch, device):
    model.train()
    losses, hits = Average(), Average()
    started = time.time()
    for i, (images, target) in enumerate(loader):
        images = images.to(device, non_blocking=True)
        target = target.to(device, non_blocking=True)
        if args.channels_last:
            images = images.to(memory_format=torch.channels_last)

        with torch.autocast(device.type, dtype=torch.float16, enabled=args.amp):
            output = model(images)
            loss = criterion(output, target)

        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

        losses.add(loss.item(), images.size(0))
        hits.add(accuracy(output, target), images.size(0))
        if (i + 1) % args.print_every == 0:
            rate = hits.count / (time.time() - started)
            print(f"epoch {epoch} [{i + 1}/{len(loader)}]  loss {losses.value:.3f}  top-1 {hits.value:.1f} %  {rate:.0f} images/s")


@torch.no_grad()
def validate(args, loader, model, criterion, device):
    model.eval()
    losses, hits = Average(), Average()
    for images, target in loader:
        images = images.to(device, non_blocking=True)
        target = target.to(device, non_blocking=True)
        with torch.autocast(device.type, dtype=torch.float16, enabled=args.amp):
            output = model(images)
            loss = criterion(output, target)
        losses.add(loss.item(), images.size(0))
        hits.add(accuracy(output, target), images.size(0))
    print(f"validation: loss {losses.value:.3f}  top-1 {hits.value:.1f} %")
    return hits.value


def main():
    args = parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    train_set, val_set = image_sets(args)
    options = {"num_workers": args.workers, "pin_memory": device.type == "cuda"}
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True, **options)
    val_loader = DataLoader(val_set, args.batch_size, **options)

    model = models.resnet50(weights=None).to(device)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(
        model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.weight_decay
    )
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
    scaler = torch.amp.GradScaler(device.type, enabled=args.amp)

    best = 0.0
    for epoch in range(args.epochs):
        train(args, train_loader, model, criterion, optimizer, scaler, epoch, device)
        top1 = validate(args, val_loader, model, criterion, device)
        scheduler.step()
        if args.checkpoint and top1 > best:
            best = top1
            torch.save({"epoch": epoch, "model": model.state_dict(), "top1": top1}, args.checkpoint)


if __name__ == "__main__":
    main()
