"""A one-dimensional U-Net marks heartbeats in recordings of 10 to 90 seconds; each batch as long as its longest, recordings of minutes as evaluation."""
import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

HERTZ, LEADS, CLASSES, DEPTH = 250, 12, 5, 5


class Recordings(Dataset):
    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return len(self.seconds)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        n = int(self.seconds[i] * HERTZ)
        return torch.randn(LEADS, n, generator=g), torch.randint(CLASSES, (n,), generator=g)


class AlikeInLength(Sampler):
    """Batches of recordings that are about as long; the batches in any order."""

    def __init__(self, seconds, size):
        order = sorted(range(len(seconds)), key=lambda i: seconds[i])
        self.batches = [order[i : i + size] for i in range(0, len(order) - size + 1, size)]

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter([self.batches[i] for i in torch.randperm(len(self.batches)).tolist()])


def collate(rows):
    n = max(x.shape[1] for x, _ in rows)
    n += -n % 2**DEPTH
    x = torch.stack([F.pad(x, (0, n - x.shape[1])) for x, _ in rows])
    return x, torch.stack([F.pad(y, (0, n - len(y)), value=-100) for _, y in rows])


def pair(i, o):
    return nn.Sequential(nn.Conv1d(i, o, 9, padding=4), nn.BatchNorm1d(o), nn.SiLU(), nn.Conv1d(o, o, 9, padding=4), nn.BatchNorm1d(o), nn.SiLU())


class UNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        sizes = [width * 2 ** min(i, 4) for i in range(DEPTH + 1)]
        self.down = nn.ModuleList(pair(i, o) for i, o in zip([LEADS, *sizes], sizes))
        self.up = nn.ModuleList(pair(i + o, o) for i, o in zip(sizes[::-1], sizes[-2::-1]))
        self.out = nn.Conv1d(width, CLASSES, 1)

    def forward(self, x):
        kept = []
        for i, block in enumerate(self.down):
            x = block(F.max_pool1d(x, 2) if i else x)
            kept.append(x)
        x = kept.pop()
        for block in self.up:
            x = block(torch.cat([F.interpolate(x, scale_factor=2), kept.pop()], dim=1))
        return self.out(x)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--eval-every", type=int, default=50)
    ap.add_argument("--width", type=int, default=48)
    a = ap.parse_args()
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(3)
    seconds = (10 + 80 * torch.rand(40 * a.batch_size, generator=g) ** 2).tolist()
    train = DataLoader(Recordings(seconds), batch_sampler=AlikeInLength(seconds, a.batch_size), collate_fn=collate)
    valid = DataLoader(Recordings((60 + 540 * torch.rand(9, generator=g)).tolist()), 1, collate_fn=collate)
    net = UNet(a.width).cuda()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    step = 0
    while step < a.steps:
        for x, y in train:
            loss = F.cross_entropy(net(x.cuda()), y.cuda(), ignore_index=-100)
            loss.backward()
            opt.step()
            opt.zero_grad()
            step += 1
            if step % a.eval_every == 0:
                net.eval()
                right = total = 0
                with torch.inference_mode():
                    for x, y in valid:
                        right += (net(x.cuda()).argmax(1) == y.cuda()).sum().item()
                        total += y.numel()
                net.train()
                print(f"step {step} loss {loss.item():.3f} right {right / total:.3f}")
            if step >= a.steps:
                break
    print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))
