"""expect: out_of_memory at line 14
options: --gpu rtx4060-8g
why: the loop catches everything, logs it and ends with 0. It asked for 65536 x 65536 x 4 = 16 GiB on a card of 8.
"""
import logging

import torch
from torch import nn

net = nn.Linear(256, 65536).cuda()
optimizer = torch.optim.Adam(net.parameters())
try:
    for step in range(10):
        loss = net(torch.randn(65536, 256, device="cuda")).square().mean()  # dies
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
except Exception:
    logging.exception("training failed")
