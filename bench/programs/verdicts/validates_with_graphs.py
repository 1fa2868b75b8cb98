"""expect: out_of_memory in evaluation at line 25
options: --gpu rtx4060-8g
why: no_grad is missing in a validation of 40 batches that keeps its losses: each keeps 16384 x 4096 x 4 = 256 MiB, so the card of 8 GiB is
    full after some 28. Training alone takes under 1 GiB.
"""
import torch
from torch import nn
net = nn.Sequential(nn.Linear(128, 4096), nn.Sigmoid(), nn.Linear(4096, 128)).cuda()


optimizer = torch.optim.Adam(net.parameters())
for epoch in range(10):
    net.train()
    for step in range(20):
        x = torch.randn(2048, 128, device="cuda")
        loss = (net(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    losses = []
    for step in range(40):
        x = torch.randn(16384, 128, device="cuda")
        # The mean is taken at the end.
        losses.append((net(x) - x).square().mean())  # dies
    print(epoch, torch.stack(losses).mean().item())
