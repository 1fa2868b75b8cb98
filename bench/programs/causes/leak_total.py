"""cause: leak/graph-retained at line 10
memory: 2GiB 3GiB
"""
import torch
from torch import nn

cell = nn.LSTMCell(1024, 1024).cuda()
state = None
for step in range(500):
    state = cell(torch.randn(1024, 1024, device="cuda"), state)  # here
    loss = state[0].square().mean()
    cell.zero_grad()
    # The state is not detached: each backward pass walks back to the first step.
    loss.backward(retain_graph=True)
