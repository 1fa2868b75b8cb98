"""Gradient checkpointing, layer by layer."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

model = nn.TransformerEncoder(nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True), 24).cuda()
head = nn.Linear(768, 2).cuda()
optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-5)
for step in range(100):
    x, y = torch.randn(32, 512, 768).cuda(), torch.randint(2, (32,)).cuda()
    hidden = x
    for layer in model.layers:
        hidden = checkpoint(layer, hidden, use_reentrant=False)
    loss = nn.functional.cross_entropy(head(hidden[:, 0]), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
