"""How long steps take: many small operations, or few large ones. Prints seconds of blocks of steps, the device awaited at
the end of each. With `--toggle` the watch is off in every other block, in the same process; with `--own` the
program itself asks for one.

    python speed.py small|large [--toggle | --own]
"""

import json
import sys
import time

import torch
from torch import nn

from models import Gpt, tokens

what, toggles = sys.argv[1], "--toggle" in sys.argv
if what == "small":
    model = nn.Sequential(*[part for _ in range(60) for part in (nn.Linear(128, 128), nn.LayerNorm(128), nn.GELU())]).cuda()
    loss_of, per_block, blocks = lambda: model(torch.randn(64, 128, device="cuda")).square().mean(), 32, 20
else:
    model = Gpt(1024, 8, 8192).cuda()
    loss_of, per_block, blocks = lambda: model.loss(tokens(8, 512, 8192)), 4, 10
optimizer = torch.optim.AdamW(model.parameters())
if "--own" in sys.argv:
    import plimsoll

    plimsoll.watch()


def step():
    optimizer.zero_grad()
    loss_of().backward()
    optimizer.step()


def block():
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(per_block):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / per_block


# Long enough for the recorder to know what its stacks cost.
for _ in range(4):
    block()
seconds = {"on": [], "off": []}
agent = sys.modules["plimsoll_agent.agent"].current() if toggles else None
for i in range(blocks * (2 if toggles else 1)):
    if agent is not None:
        agent._steps.watching = agent.watching._watcher.step_ended if i % 2 == 0 else None
    seconds["on" if i % 2 == 0 or not toggles else "off"].append(block())
print(json.dumps({"what": what, **seconds}))
