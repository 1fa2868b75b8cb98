"""Meta learning: the losses of all tasks are added up before one backward pass, so the graphs of all inner steps of all tasks wait for it."""
import torch
from torch import nn
from torch.func import functional_call

net = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 5)).cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for meta in range(500):
    optimizer.zero_grad()
    total = 0
    for task in range(16):
        support, query, answers = torch.randn(25, 3, 84, 84, device="cuda"), torch.randn(25, 3, 84, 84, device="cuda"), torch.arange(25, device="cuda") % 5
        weights = dict(net.named_parameters())
        for _ in range(3):
            loss = nn.functional.cross_entropy(functional_call(net, weights, (support,)), answers)
            gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            weights = {name: w - 0.01 * g for (name, w), g in zip(weights.items(), gradients)}
        (nn.functional.cross_entropy(functional_call(net, weights, (query,)), answers) / 16).backward()
    optimizer.step()
