"""cause: leak/results-kept at line 14
also right: line 10
memory: 2GiB 3GiB
"""
import torch
from torch import nn

net = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024)).cuda()
seen = []
net[1].register_forward_hook(lambda module, inputs, output: seen.append(output.detach()))
optimizer = torch.optim.Adam(net.parameters())
for step in range(1000):
    x = torch.randn(2048, 1024, device="cuda")
    loss = (net(x) - x).square().mean()  # here
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
