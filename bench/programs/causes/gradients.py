"""cause: size/model-states at line 12
memory: 3GiB 3.5GiB
"""
import torch
from torch import nn

net = nn.Sequential(*[nn.Linear(8192, 8192) for _ in range(8)]).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    loss = net(torch.randn(8, 8192, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()  # here
    optimizer.step()
