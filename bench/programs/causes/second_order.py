"""cause: leak/graph-retained at line 22
also right: line 23
also right: line 25
also right: growth/per-step
memory: 3GiB
why: `backward(create_graph=True)` for a second-order quantity; the gradients hold the graph, and are never set to None.
"""
import torch
from torch import nn

width = 1024
net = nn.Sequential(*[it for _ in range(6) for it in (nn.Linear(width, width), nn.Tanh())], nn.Linear(width, 1)).cuda()
parameters = list(net.parameters())
rate = 1e-3
traces = []
for step in range(200):
    x = torch.randn(2048, width, device="cuda")
    with torch.no_grad():
        for it in parameters:
            if it.grad is not None:
                it -= rate * it.grad
    loss = net(x).square().mean()  # here
    loss.backward(create_graph=True)
    if step % 10 == 0:
        traces.append(sum(it.grad.square().sum() for it in parameters))
    del loss
print(len(traces))
