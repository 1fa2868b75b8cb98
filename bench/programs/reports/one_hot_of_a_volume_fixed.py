"""Dice of 46 classes over a whole volume by one_hot, in int64 (TransMorph#64)."""
import torch
from torch import nn

net = nn.Sequential(nn.Conv3d(2, 16, 3, padding=1), nn.ReLU(), nn.Conv3d(16, 3, 3, padding=1)).cuda()
opt = torch.optim.Adam(net.parameters(), 1e-4)


def dice(a, b, classes=46):
    found = []
    for it in range(classes):
        x, y = a == it, b == it
        found.append(2.0 * (x & y).sum() / (x.sum() + y.sum()))
    return torch.stack(found).mean()


for epoch in range(3):
    net.train()
    for _ in range(20):
        flow = net(torch.randn(1, 2, 96, 96, 96).cuda())
        loss = flow.pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        for _ in range(5):
            net(torch.randn(1, 2, 160, 192, 224).cuda())
            fixed, moved = (torch.randint(0, 46, (1, 160, 192, 224)).cuda() for _ in range(2))
            print(dice(fixed, moved).item())
