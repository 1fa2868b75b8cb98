"""cause: size/one-allocation at line 14
also right: line 15
memory: 4GiB 5GiB
"""
import torch
from torch import nn

body = nn.Sequential(nn.Embedding(128256, 256), nn.Linear(256, 256)).cuda()
head = nn.Linear(256, 128256, bias=False).cuda()
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
for step in range(5):
    words = torch.randint(128256, (4, 1024), device="cuda")
    hidden = body(words)
    logits = head(hidden)  # here
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), words.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
