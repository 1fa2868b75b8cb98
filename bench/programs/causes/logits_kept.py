"""cause: leak/results-kept at line 13
also right: line 12
memory: 3GiB
"""
import torch
from torch import nn

net = nn.Sequential(nn.Embedding(8000, 256), nn.Linear(256, 8000)).cuda().eval()
everything = []
with torch.inference_mode():
    for step in range(400):
        words = torch.randint(8000, (16, 128), device="cuda")
        everything.append(net(words))  # here
print(len(everything))
