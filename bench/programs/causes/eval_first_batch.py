"""cause: leak/eval-without-no-grad at line 20
memory: 3GiB 4GiB 5GiB
why: the validation's batch is eight times the training's, and no_grad is missing; with it a pass holds two layers, not twenty-four.
"""
import torch
from torch import nn
net = nn.Sequential(*[layer for _ in range(24) for layer in (nn.Linear(1024, 1024), nn.GELU())]).cuda()
optimizer = torch.optim.Adam(net.parameters())
for epoch in range(3):
    net.train()
    for step in range(5):
        x = torch.randn(4096, 1024, device="cuda")
        loss = (net(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    for step in range(2):
        x = torch.randn(32768, 1024, device="cuda")
        loss = (net(x) - x).square().mean()  # here
    print(loss.item())
