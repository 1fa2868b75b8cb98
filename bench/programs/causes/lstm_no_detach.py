"""cause: leak/graph-retained at line 19
also right: line 16
also right: line 17
memory: 2GiB
why: the hidden state carries its graph from batch to batch, and retain_graph keeps all of it.
"""
import torch
from torch import nn

net = nn.LSTM(256, 512, batch_first=True).cuda()
head = nn.Linear(512, 256).cuda()
optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.0)
state = (torch.zeros(1, 64, 512, device="cuda"), torch.zeros(1, 64, 512, device="cuda"))
for step in range(300):
    x = torch.randn(64, 64, 256, device="cuda")
    out, state = net(x, state)
    loss = head(out).square().mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)  # here
