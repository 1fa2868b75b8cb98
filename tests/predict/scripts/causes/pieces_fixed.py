"""The same, the windows of one batch at a time."""
import torch
from torch import nn

signal = torch.randn(2_000_000)
windows = signal.unfold(0, 1024, 64)
net = nn.Sequential(nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 1)).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
for part in windows.split(512):
    loss = net(part.cuda()).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
