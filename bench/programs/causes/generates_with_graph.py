"""cause: leak/eval-without-no-grad at line 14
also right: leak/results-kept
memory: 2GiB 3GiB
"""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.ModuleList([nn.Linear(2048, 2048) for _ in range(8)]).cuda()
state = torch.randn(512, 2048, device="cuda")
for token in range(400):
    # Each state comes from the one before, and autograd remembers all of them.
    for layer in net:
        state = torch.tanh(layer(state))  # here
print(state.shape)
