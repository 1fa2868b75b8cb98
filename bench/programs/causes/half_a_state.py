"""cause: size/model-states at line 14
memory: 2500MiB
"""
import torch
from torch import nn

# 800 MiB of embeddings, and Adam wants two times as much again.
table = nn.Embedding(800_000, 256).cuda()
head = nn.Linear(256, 2).cuda()
optimizer = torch.optim.AdamW([*table.parameters(), *head.parameters()])
for step in range(3):
    loss = head(table(torch.randint(800_000, (64,), device="cuda"))).square().mean()
    loss.backward()
    optimizer.step()  # here
    optimizer.zero_grad()
