"""cause: inputs/dynamic-shapes at line 12
memory: 2GiB 3GiB
"""
import torch
from torch import nn

net = nn.LSTM(512, 1024, num_layers=2, batch_first=True).cuda()
head = nn.Linear(1024, 64).cuda()
optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()])
for length in (100, 120, 3000, 90):
    # The third is by far the longest.
    batch = torch.randn(32, length, 512, device="cuda")  # here
    loss = head(net(batch)[0]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
