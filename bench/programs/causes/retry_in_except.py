"""cause: leak/traceback-kept at line 17
also right: line 26
memory: 2GiB
why: the smaller batch is tried within the `except` block, where the error holds the larger one's activations.
"""
import torch
from torch import nn

net = nn.Sequential(*[layer for _ in range(12) for layer in (nn.Linear(1024, 1024), nn.GELU())]).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def step(batch):
    x = torch.randn(batch, 1024, device="cuda")
    kept = [x]
    for layer in net:
        kept.append(layer(kept[-1]))  # here
    loss = kept[-1].square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


for batch in (4096, 4096, 20000, 4096):
    try:
        step(batch)
    except torch.OutOfMemoryError as error:
        step(batch // 2)
