"""cause: size/one-allocation at line 12
memory: 2GiB
"""
import torch
from torch import nn

net = nn.Linear(64, 64).cuda()
optimizer = torch.optim.Adam(net.parameters())
for step in range(3):
    x = net(torch.randn(20000, 64, device="cuda"))
    # Each against each.
    loss = (x @ x.T).logsumexp(1).mean()  # here
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
