"""cause: size/one-allocation at line 15
also right: line 16
memory: 3GiB
why: all pairs of 16,384 nodes.
"""
import torch
from torch import nn

n = 16384
w1, w2 = nn.Linear(64, 64).cuda(), nn.Linear(64, 8).cuda()
optimizer = torch.optim.Adam([*w1.parameters(), *w2.parameters()])
x = torch.randn(n, 64, device="cuda")
for step in range(3):
    h = torch.relu(w1(x))
    similarity = h @ h.t()  # here
    attention = similarity.softmax(dim=1)
    out = w2(attention @ h)
    loss = out.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
