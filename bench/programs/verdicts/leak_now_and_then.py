"""expect: grows 2.0 MiB a step at line 17
why: every eighth step keeps a copy of the weights, 2048 x 2048 x 4 = 16,777,216 bytes: 2 MiB a step, in stairs.
"""
import torch
from torch import nn

net = nn.Sequential(nn.Linear(2048, 2048, bias=False), nn.Tanh()).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
averaged = []
for step in range(100_000):
    x = torch.randn(512, 2048, device="cuda")
    loss = (net(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 8 == 7:
        averaged.append(net[0].weight.detach().clone())  # keeps
