"""cause: limit/process
memory: 12GiB
why: the script gives itself a tenth of the card.
"""
import torch
from torch import nn

torch.cuda.set_per_process_memory_fraction(0.1)
net = nn.Sequential(*[layer for _ in range(10) for layer in (nn.Linear(1024, 1024), nn.GELU())]).cuda()
optimizer = torch.optim.Adam(net.parameters())
for step in range(3):
    loss = net(torch.randn(32768, 1024, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
