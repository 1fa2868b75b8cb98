"""cause: leak/graph-retained at line 21
also right: size/activations
also right: line 19
memory: 2GiB
why: gradients are to be accumulated, but it is the losses that are, and their graphs wait for one backward.
"""
import torch
from torch import nn
from torchvision.models import regnet_y_800mf

net = regnet_y_800mf(num_classes=12).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(4):
    optimizer.zero_grad()
    total = torch.zeros((), device="cuda")
    for part in range(32):
        images = torch.randn(8, 3, 192, 192, device="cuda")
        labels = torch.randint(0, 12, (8,), device="cuda")
        out = net(images)
        loss = nn.functional.cross_entropy(out, labels)
        total = total + loss / 32  # here
    total.backward()
    optimizer.step()
