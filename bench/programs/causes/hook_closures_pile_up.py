"""cause: leak/graph-retained at line 18
also right: leak/results-kept
memory: 2GiB
why: a hook is registered in each step and never removed; its closure holds that step's hidden layer, and with it the graph.
"""
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(512, 4096)
        self.mid = nn.Linear(4096, 4096)
        self.down = nn.Linear(4096, 10)

    def forward(self, x):
        hidden = torch.tanh(self.mid(torch.tanh(self.up(x))))  # here
        self.mid.weight.register_hook(lambda grad: grad + 1e-9 * hidden.mean())
        return self.down(hidden)


net = Net().cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(300):
    x = torch.randn(512, 512, device="cuda")
    y = torch.randint(10, (512,), device="cuda")
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
