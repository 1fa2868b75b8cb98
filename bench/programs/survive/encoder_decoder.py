"""Two models, one after the other, and what is between them belongs to the script."""

import torch
import torch.nn.functional as F
from torch import nn

from planted import STEPS, ended, size

encoder = nn.Sequential(nn.Linear(256, 2048), nn.SiLU(), nn.Linear(2048, 1024)).cuda()
decoder = nn.Sequential(nn.Linear(1024, 2048), nn.SiLU(), nn.Linear(2048, 256)).cuda()
both = nn.ModuleList([encoder, decoder])
optimizer = torch.optim.Adam(both.parameters(), 1e-3)
for step in range(STEPS):
    x = torch.randn(size(step, 16384, 131072), 256, device="cuda")
    optimizer.zero_grad()
    loss = F.mse_loss(decoder(F.normalize(encoder(x), dim=1)), x)
    loss.backward()
    optimizer.step()
    ended(step, loss, both)
