"""A translator of pictures prints examples every 1,000 steps, with gradients on: all pictures of the test go through all networks."""
import torch
from torch import nn


def translator():
    return nn.Sequential(nn.Conv2d(3, 64, 7, padding=3), nn.ReLU(), *[part for _ in range(6) for part in (nn.Conv2d(64, 64, 3, padding=1), nn.InstanceNorm2d(64), nn.ReLU())], nn.Conv2d(64, 3, 7, padding=3))


there, back = translator().cuda(), translator().cuda()
optimizer = torch.optim.Adam([*there.parameters(), *back.parameters()], lr=1e-4)
tests = torch.randn(5, 3, 256, 256)
for step in range(1, 100_001):
    a = torch.randn(1, 3, 256, 256).cuda()
    loss = (back(there(a)) - a).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 1000 == 0:
        rows = []
        for picture in tests.cuda():
            other = there(picture[None])
            rows.append(torch.cat([picture[None], other, back(other), back(there(back(other)))], 3))
        print(step, torch.cat(rows, 2).shape)
