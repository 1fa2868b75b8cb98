"""cause: size/one-allocation at line 15
also right: line 16
memory: 3GiB
why: differences of every pair of 1,536 vectors of 256 numbers.
"""
import torch
from torch import nn

net = nn.Linear(128, 256).cuda()
optimizer = torch.optim.Adam(net.parameters())
for step in range(3):
    x = torch.randn(1536, 128, device="cuda")
    labels = torch.randint(0, 10, (1536,), device="cuda")
    e = net(x)
    gaps = e[:, None] - e[None]  # here
    far = gaps.square().sum(-1)
    loss = far[labels[:, None] == labels].mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
