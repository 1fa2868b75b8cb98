"""cause: leak/earlier-models at line 22
also right: line 29
memory: 2GiB 3GiB
why: the results of a sweep hold the model and the optimizer of each trial.
"""
import torch
from torch import nn


def build(width):
    layers = [nn.Linear(512, width), nn.GELU()]
    for _ in range(4):
        layers += [nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


results = {}
data = torch.randn(4096, 512, device="cuda")
target = torch.randint(0, 10, (4096,), device="cuda")
for rate in (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5):
    torch.manual_seed(0)
    model = build(2560).cuda()  # here
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    for step in range(6):
        rows = torch.randint(0, 4096, (256,), device="cuda")
        loss = nn.functional.cross_entropy(model(data[rows]), target[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    results[rate] = (loss.item(), model, optimizer)
