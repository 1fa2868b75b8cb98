"""expect: fits
never: grows
peak: allocated at least 384 MiB
why: batches have three sizes that take turns, the largest each ninth; nothing is kept.
"""
import torch
from torch import nn

net = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
sizes = [1024, 1024, 4096, 1024, 4096, 1024, 4096, 1024, 16384]
for step in range(3000):
    x = torch.randn(sizes[step % 9], 512, device="cuda")
    loss = (net(x) - x).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
