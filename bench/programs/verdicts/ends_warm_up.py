"""expect: fits
peak: allocated at least 512 MiB
never: grows
why: the length grows by 32 a step and ends at 1024 after 31 steps. The batch is then 32 x 1024 x 512 x 4 = 64 MiB, the hidden
    layer 4 x that.
"""
import torch
from torch import nn

model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(400):
    length = min(32 + 32 * step, 1024)
    x = torch.randn(32, length, 512, device="cuda")
    loss = nn.functional.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
