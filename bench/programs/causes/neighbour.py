"""cause: outside/not-pytorch
memory: 4GiB
why: a process beside holds 3 GiB; alone the training would have fitted.
"""
import multiprocessing
import sys

import torch
from torch import nn


def neighbour(ready, end):
    held = torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
    ready.set()
    end.wait()
    del held


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    ready, end = context.Event(), context.Event()
    process = context.Process(target=neighbour, args=(ready, end), daemon=True)
    process.start()
    ready.wait()
    net = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(1024, 1024), nn.GELU())]).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    for step in range(3):
        loss = net(torch.randn(32768, 1024, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
