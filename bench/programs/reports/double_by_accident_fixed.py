"""Arrays of numpy are doubles, and so the network was made double, too."""
import numpy as np
import torch
from torch import nn


class UNet1d(nn.Module):
    def __init__(self, ch=64):
        super().__init__()
        self.down = nn.ModuleList([nn.Conv1d(12, ch, 9, 1, 4), nn.Conv1d(ch, 2 * ch, 9, 2, 4), nn.Conv1d(2 * ch, 4 * ch, 9, 2, 4)])
        self.up = nn.ModuleList([nn.ConvTranspose1d(4 * ch, 2 * ch, 8, 2, 3), nn.ConvTranspose1d(4 * ch, ch, 8, 2, 3)])
        self.norms = nn.ModuleList(nn.BatchNorm1d(c) for c in (ch, 2 * ch, 4 * ch, 2 * ch, ch))
        self.out = nn.Conv1d(2 * ch, 3, 1)

    def forward(self, x):
        a = torch.relu(self.norms[0](self.down[0](x)))
        b = torch.relu(self.norms[1](self.down[1](a)))
        c = torch.relu(self.norms[2](self.down[2](b)))
        d = torch.cat([torch.relu(self.norms[3](self.up[0](c))), b], 1)
        e = torch.cat([torch.relu(self.norms[4](self.up[1](d))), a], 1)
        return self.out(e)


signals = np.random.rand(2000, 12, 5000)
labels = np.random.randint(0, 3, (2000, 5000))
net = UNet1d().cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(20):
    for i in range(0, 2000, 64):
        x = torch.from_numpy(signals[i : i + 64]).float().cuda()
        y = torch.from_numpy(labels[i : i + 64]).cuda()
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
