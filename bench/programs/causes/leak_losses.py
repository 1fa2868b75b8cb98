"""cause: leak/graph-retained at line 12
also right: line 15
memory: 2GiB 4GiB
"""
import torch
from torch import nn

net = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU())]).cuda()
optimizer = torch.optim.Adam(net.parameters())
history = []
for step in range(1000):
    loss = net(torch.randn(2048, 1024, device="cuda")).square().mean()  # here
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    history.append(loss)
    optimizer.step()
