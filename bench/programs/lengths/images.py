"""Classifies photographs of several sizes, padded to the largest of each batch."""
import random
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Photos(Dataset):
    def __init__(self, n, seed):
        r = random.Random(seed)
        self.sizes = [(r.choice((480, 512, 640, 720, 800)), r.choice((480, 640, 800, 960, 1024, 1280))) for _ in range(n)]
    def __len__(self): return len(self.sizes)
    def __getitem__(self, i):
        h, w = self.sizes[i]
        return torch.zeros(3, h, w), i % 100

def collate(rows):
    h, w = max(x.shape[1] for x, _ in rows), max(x.shape[2] for x, _ in rows)
    out = torch.zeros(len(rows), 3, h, w)
    for i, (x, _) in enumerate(rows): out[i, :, : x.shape[1], : x.shape[2]] = x
    return out, torch.tensor([y for _, y in rows])

class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(n, n, 3, padding=1), nn.GroupNorm(8, n), nn.SiLU(), nn.Conv2d(n, n, 3, padding=1), nn.GroupNorm(8, n))
    def forward(self, x): return nn.functional.silu(x + self.body(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 7, 4, 3)
        self.stages = nn.ModuleList()
        for i, n in enumerate((64, 128, 256, 512)):
            self.stages.append(nn.Sequential(*[Block(n) for _ in range(3)], nn.Conv2d(n, min(2 * n, 512), 2, 2)))
        self.head = nn.Linear(512, 100)
    def forward(self, x):
        x = self.stem(x)
        for it in self.stages: x = it(x)
        return self.head(x.mean((2, 3)))

net = Net().cuda()
opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
train = DataLoader(Photos(3000, 0), 16, shuffle=True, collate_fn=collate, num_workers=2)
valid = DataLoader(Photos(100, 1), 32, collate_fn=collate)
for epoch in range(2):
    net.train()
    for x, y in train:
        loss = nn.functional.cross_entropy(net(x.cuda()), y.cuda())
        opt.zero_grad(); loss.backward(); opt.step()
    net.eval()
    with torch.no_grad():
        right = sum((net(x.cuda()).argmax(1) == y.cuda()).sum().item() for x, y in valid)
    print(epoch, right)
