"""cause: size/activations at line 30
also right: line 24
also right: line 22
also right: line 31
also right: line 32
memory: 2GiB 3GiB
why: the inner loop of a meta-learner keeps the graph of each of its steps, since the outer loss goes back through all.
"""
import torch
from torch import nn
from torch.func import functional_call


class Net(nn.Module):
    def __init__(self, width=1024, depth=4):
        super().__init__()
        self.first = nn.Linear(64, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.last = nn.Linear(width, 5)

    def forward(self, x):
        x = self.first(x).relu()
        for layer in self.layers:
            x = nn.functional.silu(layer(x))
        return self.last(x)


def adapt(net, weights, x, y, steps):
    for _ in range(steps):
        loss = nn.functional.cross_entropy(functional_call(net, weights, (x,)), y)  # here
        grads = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        weights = {name: it - 0.01 * g for (name, it), g in zip(weights.items(), grads)}
    return weights


net = Net().cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
for epoch in range(4):
    outer = 0.0
    for task in range(4):
        x, y = torch.randn(512, 64, device="cuda"), torch.randint(0, 5, (512,), device="cuda")
        adapted = adapt(net, dict(net.named_parameters()), x, y, 10)
        outer = outer + nn.functional.cross_entropy(functional_call(net, adapted, (x,)), y)
    optimizer.zero_grad()
    outer.backward()
    optimizer.step()
