"""An averaged copy of the model is copied once more for each checkpoint, in host memory, and no list holds the copies."""
import copy

import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.Linear(512, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 512)).cuda()
ema = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)


def checkpoint():
    package = {name: it.to("cpu", torch.half) for name, it in ema.state_dict().items()}
    torch.save(package, "ema.pt")


for step in range(30_000):
    x = torch.randn(128, 512).cuda()
    loss = F.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for a, b in zip(ema.parameters(), model.parameters()):
            a.lerp_(b, 0.01)
    if step % 25 == 24:
        checkpoint()
