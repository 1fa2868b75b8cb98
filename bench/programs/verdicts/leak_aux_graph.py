"""expect: grows 16.0 MiB a step at line 18
why: `out - x` is 4096 x 1024 x 4 = 16,777,216 bytes, which pow() keeps for a backward pass that never comes: the sum is only
    printed. The sum itself is 512 bytes in all.
"""
import torch
from torch import nn

model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
total = 0
for step in range(10_000):
    x = torch.randn(4096, 1024, device="cuda")
    out = model(x)
    loss = nn.functional.l1_loss(out, x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += (out - x).pow(2).mean()  # keeps
print("mean square error", total.item())
