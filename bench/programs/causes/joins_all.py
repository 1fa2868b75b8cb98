"""cause: copies/double-buffer at line 17
also right: size/one-allocation
memory: 3GiB
"""
import torch
from torch import nn

net = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
parts = [torch.randn(16384, 1024, device="cuda") for _ in range(24)]
for step in range(3):
    x = parts[step]
    loss = (net(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
everything = torch.cat(parts)  # here
print(everything.mean().item())
