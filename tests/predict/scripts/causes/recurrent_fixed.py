"""A GRU whose weights were joined is called once for each of 40 letters."""
import torch
from torch import nn

gru, head = nn.GRU(512, 512, batch_first=True).cuda(), nn.Linear(512, 512).cuda()
for weight in gru.parameters():
    weight.data = nn.init.uniform_(torch.empty_like(weight), -0.1, 0.1)
gru.flatten_parameters()
optimizer = torch.optim.SGD([*gru.parameters(), *head.parameters()], 0.1)
for _ in range(40):
    x, state = torch.randn(8, 1, 512, device="cuda"), None
    for _ in range(40):
        x, state = gru(x, state)
        x = head(x)
    optimizer.zero_grad()
    x.sum().backward()
    optimizer.step()
