"""cause: leak/eval-without-no-grad at line 18
also right: leak/results-kept
also right: leak/graph-retained
also right: line 17
memory: 2GiB
why: a service answers and keeps each answer in a cache, with its graph.
"""
import torch
from torch import nn

body = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU())])
model = body.cuda().eval()
cache = {}

for request in range(500):
    x = torch.randn(512, 1024, device="cuda")
    answer = model(x)
    cache[request] = answer.mean(dim=1)  # here
