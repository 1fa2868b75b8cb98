"""cause: inputs/dynamic-shapes
memory: 4GiB 6GiB
why: each epoch doubles the length of sequences.
"""
import torch
from torch import nn

layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True, dropout=0.1)
model = nn.Sequential(nn.Linear(16, 256), nn.TransformerEncoder(layer, 6), nn.Linear(256, 16)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for epoch in range(7):
    length = 64 * 2**epoch
    for step in range(6):
        x = torch.randn(16, length, 16, device="cuda")
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
