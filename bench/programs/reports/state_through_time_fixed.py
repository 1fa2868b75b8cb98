"""The same; the state goes on without its graph."""
import torch
from torch import nn

network, head = nn.GRU(64, 512, batch_first=True).cuda(), nn.Linear(512, 64).cuda()
optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
series = torch.randn(64, 50, 64)
state = torch.zeros(1, 64, 512, device="cuda")
losses = []
for window in range(2000):
    x = series.cuda()
    found, state = network(x, state.detach())
    loss = (head(found[:, :-1]) - x[:, 1:]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
