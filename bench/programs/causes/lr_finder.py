"""cause: leak/earlier-models at line 21
also right: line 12
also right: line 23
memory: 3GiB
why: a search for the learning rate keeps the model and the optimizer of each rate that it tried.
"""
import torch
from torch import nn


def build():
    return nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()


tried = {}
x = torch.randn(128, 1024, device="cuda")


def attempt(rate):
    torch.manual_seed(0)
    net = build()  # here
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    for _ in range(6):
        loss = (net(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net, optimizer, loss.item()


for n in range(40):
    rate = 1e-6 * 1.5**n
    tried[rate] = attempt(rate)
print(min((it[2], rate) for rate, it in tried.items()))
