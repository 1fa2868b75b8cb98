"""All windows of a long signal are cut out at once, each 64 samples after the one before, and brought to the device."""
import torch
from torch import nn

signal = torch.randn(2_000_000)
windows = signal.unfold(0, 1024, 64).cuda()
net = nn.Sequential(nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 1)).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
for part in windows.split(512):
    loss = net(part).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
