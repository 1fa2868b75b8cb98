"""Buildings from satellite tiles: a U-Net with attention gates, dice and cross-entropy, OneCycleLR, a validation after each epoch."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--tile", type=int, default=512)
parser.add_argument("--width", type=int, default=48)
parser.add_argument("--epochs", type=int, default=2)
args = parser.parse_args()


class Tiles(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.rand(4, args.tile, args.tile), torch.randint(0, 3, (args.tile, args.tile))


def double(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(),
                         nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU())


class Gate(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.g, self.x, self.psi = nn.Conv2d(c, c // 2, 1), nn.Conv2d(c, c // 2, 1), nn.Conv2d(c // 2, 1, 1)

    def forward(self, g, x):
        return x * torch.sigmoid(self.psi(F.relu(self.g(g) + self.x(x))))


class AttentionUNet(nn.Module):
    def __init__(self, w):
        super().__init__()
        sizes = [w, 2 * w, 4 * w, 8 * w]
        self.enc = nn.ModuleList(double(a, b) for a, b in zip([4] + sizes[:-1], sizes))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in zip(sizes[:-1], sizes[1:]))
        self.gates = nn.ModuleList(Gate(a) for a in sizes[:-1])
        self.dec = nn.ModuleList(double(2 * a, a) for a in sizes[:-1])
        self.head = nn.Conv2d(w, 3, 1)

    def forward(self, x):
        kept = []
        for i, block in enumerate(self.enc):
            x = block(x if i == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        x = kept.pop()
        for up, gate, block in zip(reversed(self.up), reversed(self.gates), reversed(self.dec)):
            g, skip = up(x), kept.pop()
            x = block(torch.cat([g, gate(g, skip)], 1))
        return self.head(x)


def dice(logits, y):
    p, t = logits.softmax(1), F.one_hot(y, 3).permute(0, 3, 1, 2).float()
    return 1 - (2 * (p * t).sum((2, 3)) / ((p + t).sum((2, 3)) + 1)).mean()


def run_epoch(model, loader, optimizer=None, schedule=None):
    total = 0.0
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        logits = model(x)
        loss = F.cross_entropy(logits, y) + dice(logits, y)
        if optimizer:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        total += loss.item()
    return total / len(loader)


model = AttentionUNet(args.width).cuda()
train, valid = (DataLoader(Tiles(n), args.batch_size, num_workers=2) for n in (160, 32))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, epochs=args.epochs, steps_per_epoch=len(train))
for epoch in range(args.epochs):
    model.train()
    a = run_epoch(model, train, optimizer, schedule)
    model.eval()
    with torch.no_grad():
        b = run_epoch(model, valid)
    print(epoch, a, b)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "satellite.pt")
