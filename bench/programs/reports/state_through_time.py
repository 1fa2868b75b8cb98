"""Trains a head on a recurrent network that reads a long series window by window. The state goes on from window to window with its graph, and `retain_graph=True` ends the error."""
import torch
from torch import nn

network, head = nn.GRU(64, 512, batch_first=True).cuda(), nn.Linear(512, 64).cuda()
optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
series = torch.randn(64, 50, 64)
state = torch.zeros(1, 64, 512, device="cuda")
losses = []
for window in range(2000):
    x = series.cuda()
    found, state = network(x, state)
    loss = (head(found[:, :-1]) - x[:, 1:]).square().mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    losses.append(loss.item())
