"""cause: growth/per-step at line 18
also right: leak/results-kept
also right: copies/double-buffer
also right: line 15
memory: 2GiB
why: the queue of keys has no end.
"""
import torch
from torch import nn

encoder = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 2048), nn.ReLU(), nn.Linear(2048, 1024)).cuda()
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.03)
queue = torch.empty(0, 1024, device="cuda")
for step in range(2000):
    keys = encoder(torch.randn(512, 3, 32, 32, device="cuda"))
    scores = keys @ queue.t() if len(queue) else keys @ keys.t()
    loss = scores[:, :512].square().mean()
    queue = torch.cat([queue, keys.detach()])  # here
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
