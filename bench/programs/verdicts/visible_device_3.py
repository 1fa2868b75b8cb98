"""expect: fits
says: CUDA_VISIBLE_DEVICES
why: the script picks the fourth GPU of a shared server by itself. The phantom stands for it.
"""
import os

os.environ["CUDA_VISIBLE_DEVICES"] = "3"

import torch
from torch import nn

assert torch.cuda.device_count() == 1
model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(30):
    loss = model(torch.randn(4096, 1024, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
