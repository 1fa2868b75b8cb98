"""cause: leak/results-kept at line 20
also right: line 18
also right: growth/per-step
memory: 2GiB
why: each cell ends with an expression, and the notebook's `Out` keeps its value for ever.
"""
import torch
from IPython.core.interactiveshell import InteractiveShell
from torch import nn


def encode(net, pictures):
    """Features of some pictures, for a look at them."""
    found = []
    with torch.no_grad():
        for some in pictures.split(64):
            x = net[:4](some)
            x = torch.nn.functional.interpolate(x, size=64)
            found.append(x.half())
        return torch.cat(found)  # here


net = nn.Sequential(
    nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    nn.Linear(64, 10),
).cuda()
shell = InteractiveShell.instance()
shell.user_ns.update(torch=torch, net=net, encode=encode)
shell.run_cell("optimizer = torch.optim.Adam(net.parameters())", store_history=True)
for cell in range(40):
    shell.run_cell(
        "pictures = torch.randn(256, 3, 96, 96, device='cuda')\n"
        "for some in pictures.split(64):\n"
        "    loss = net(some).square().mean()\n"
        "    optimizer.zero_grad()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "encode(net, pictures).mean((2, 3), keepdim=True).expand(-1, -1, 64, 64) * encode(net, pictures);",
        store_history=True,
    )
    shell.run_cell("encode(net, pictures)", store_history=True)
