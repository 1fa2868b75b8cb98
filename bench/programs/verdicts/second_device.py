"""expect: script_failed (one GPU)
says: --gpus 2
why: the script uses cuda:1, and the machine that was asked for has one GPU.
"""
import torch
from torch import nn

device = torch.device("cuda:1")
model = nn.Linear(1024, 1024).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    loss = model(torch.randn(64, 1024, device=device)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
