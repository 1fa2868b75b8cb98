"""expect: fits
says: mem_get_info
cards: none
why: the batch is as large as the free memory allows, so what it takes on this card says nothing about another.
"""
import torch
from torch import nn

model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
free, total = torch.cuda.mem_get_info()
batch = int(free * 0.5) // ((1024 * 4 + 4096 * 3) * 4) // 64 * 64
print("batch", batch)
for step in range(50):
    x = torch.randn(batch, 1024, device="cuda")
    loss = nn.functional.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
