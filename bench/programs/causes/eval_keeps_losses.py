"""cause: leak/eval-without-no-grad at line 19
memory: 2GiB 4GiB
"""
import torch
from torch import nn
net = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(512, 512), nn.ReLU())]).cuda()
optimizer = torch.optim.Adam(net.parameters())
for epoch in range(3):
    for step in range(8):
        x = torch.randn(4096, 512, device="cuda")
        loss = (net(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    total = 0
    for step in range(200):
        x = torch.randn(4096, 512, device="cuda")
        total = total + (net(x) - x).square().mean()  # here
    print(total.item())
    net.train()
