"""Part segmentation of scanned objects: clouds of any number of points, edge convolutions over neighbours; whole rooms as evaluation."""
import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

PARTS = 24


class Clouds(Dataset):
    def __init__(self, n, fewest, most, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.sizes = torch.randint(fewest, most + 1, (n,), generator=self.g).tolist()

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, i):
        points = torch.randn(self.sizes[i], 3, generator=self.g)
        return points, ((points[:, 0] > 0).long() * 12 + (points[:, 1].abs() * 5).long().clamp(max=11))


def neighbours(points, counts, k):
    """Indices into the joined points, cloud by cloud."""
    found, first = [], 0
    for cloud in points.split(counts):
        found.append(torch.cdist(cloud, cloud).topk(k, largest=False).indices + first)
        first += len(cloud)
    return torch.cat(found)


class EdgeConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.first, self.bn1 = nn.Linear(2 * i, o, bias=False), nn.BatchNorm1d(o)
        self.second, self.bn2 = nn.Linear(o, o, bias=False), nn.BatchNorm1d(o)

    def forward(self, x, near):
        n, k = near.shape
        here = x[:, None].expand(-1, k, -1)
        pairs = torch.cat([here, x[near] - here], dim=-1).flatten(0, 1)
        y = F.leaky_relu(self.bn1(self.first(pairs)), 0.2)
        y = F.leaky_relu(self.bn2(self.second(y)), 0.2)
        return y.view(n, k, -1).amax(1)


class Segmenter(nn.Module):
    def __init__(self, width, k):
        super().__init__()
        self.k = k
        self.convs = nn.ModuleList([EdgeConv(3, width), EdgeConv(width, width), EdgeConv(width, width)])
        self.out = nn.Sequential(nn.Linear(3 * width + 256, 256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, PARTS))
        self.whole = nn.Linear(3 * width, 256)

    def forward(self, points, counts):
        near = neighbours(points, counts, self.k)
        x, kept = points, []
        for conv in self.convs:
            x = conv(x, near)
            kept.append(x)
        x = torch.cat(kept, dim=1)
        whole = torch.stack([part.amax(0) for part in self.whole(x).split(counts)])
        owner = torch.repeat_interleave(torch.arange(len(counts), device=x.device), torch.tensor(counts, device=x.device))
        return self.out(torch.cat([x, whole[owner]], dim=1))


def join(items):
    return torch.cat([p for p, _ in items]), torch.cat([y for _, y in items]), [len(p) for p, _ in items]


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=180)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--eval-every", type=int, default=60)
    ap.add_argument("--points", type=int, nargs=2, default=(512, 4096))
    ap.add_argument("--room", type=int, nargs=2, default=(12000, 48000), help="points of a room")
    ap.add_argument("--width", type=int, default=64)
    ap.add_argument("--near", type=int, default=16)
    ap.add_argument("--device", default="cuda")
    a = ap.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(3)
    net = Segmenter(a.width, a.near).to(a.device)
    train = DataLoader(Clouds(180 * a.batch_size, *a.points, 1), a.batch_size, shuffle=True, collate_fn=join)
    rooms = DataLoader(Clouds(6, *a.room, 2), 1, collate_fn=join)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    step = 0
    while step < a.steps:
        for points, parts, counts in train:
            # Turned at random about the vertical.
            turn = torch.rand(()) * 6.283
            turned = torch.tensor([[turn.cos(), -turn.sin(), 0], [turn.sin(), turn.cos(), 0], [0, 0, 1]])
            loss = F.cross_entropy(net((points @ turned).to(a.device), counts), parts.to(a.device))
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % a.eval_every == 0:
                net.eval()
                right = total = 0
                with torch.no_grad():
                    for points, parts, counts in rooms:
                        right += (net(points.to(a.device), counts).argmax(1).cpu() == parts).sum().item()
                        total += len(parts)
                net.train()
                print(f"step {step} loss {loss.item():.3f} right {right / total:.3f}")
            if step >= a.steps:
                break
    print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))
