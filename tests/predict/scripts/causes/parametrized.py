"""A cell with weight normalisation, whose weight is computed anew in each of 60 calls."""
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

cell = weight_norm(nn.Linear(704, 704)).cuda()
optimizer = torch.optim.SGD(cell.parameters(), 0.1)
for _ in range(40):
    h = torch.randn(8, 704, device="cuda")
    for _ in range(60):
        h = torch.tanh(cell(h))
    optimizer.zero_grad()
    h.sum().backward()
    optimizer.step()
