"""cause: inputs/dynamic-shapes at line 11
memory: 3GiB
"""
import torch
from torch import nn

net = nn.GRU(256, 512, num_layers=3, batch_first=True).cuda()
optimizer = torch.optim.RMSprop(net.parameters())
for step in range(8):
    length = 6000 if step == 5 else 200 + 10 * step
    texts = torch.randn(48, length, 256, device="cuda")  # here
    loss = net(texts)[0].abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
