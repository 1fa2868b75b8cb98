"""cause: size/model-states at line 13
memory: 5GiB 6GiB
"""
import torch
from torch import nn

net = nn.Sequential(*[nn.Linear(8192, 8192) for _ in range(8)]).cuda()
optimizer = torch.optim.Adam(net.parameters())
for step in range(3):
    loss = net(torch.randn(8, 8192, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # here
