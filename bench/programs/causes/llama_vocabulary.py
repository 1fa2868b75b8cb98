"""cause: size/one-allocation at line 17
also right: size/activations
also right: line 16
memory: 5GiB
why: scores of 16 texts of 512 words over a vocabulary of 64,000, in four bytes each, and their gradient.
"""
import torch
from torch import nn

words = nn.Embedding(64000, 128).cuda()
body = nn.Sequential(nn.Linear(128, 256), nn.SiLU(), nn.Linear(256, 128)).cuda()
head = nn.Linear(128, 64000, bias=False).cuda()
optimizer = torch.optim.SGD([*words.parameters(), *body.parameters(), *head.parameters()], lr=0.1)
for step in range(3):
    ids = torch.randint(0, 64000, (16, 512), device="cuda")
    scores = head(body(words(ids)))
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), ids.flatten())  # here
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
