"""cause: leak/traceback-kept at line 31
memory: 3GiB
why: the first cell ran out; the interpreter remembers its traceback, and the second cell starts beside it.
"""
import sys
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1024, 1024) for _ in range(40))
        self.head = nn.Linear(1024, 10)

    def forward(self, x):
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x))
        return self.head(x)


def cell(source):
    try:
        source()
    except RuntimeError:
        sys.last_type, sys.last_value, sys.last_traceback = sys.exc_info()


def first():
    x = torch.randn(16384, 1024, device="cuda")
    loss = model(x).square().mean()  # here
    loss.backward()


def second():
    for _ in range(3):
        x = torch.randn(8192, 1024, device="cuda")
        loss = model(x).square().mean()
        loss.backward()


model = Net().cuda()
cell(first)
second()
