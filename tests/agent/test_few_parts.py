"""A run of a search makes the first few parts of a batch: it takes what a run with all parts takes."""

import json

import pytest

OWN_LOSS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(256, 1024), nn.Linear(1024, 256)
    def forward(self, x, y):
        out = self.b(torch.relu(self.a(x)))
        return {"loss": nn.functional.mse_loss(out, y), "out": out}
def loss_of(net, x, y): return net(x, y)["loss"]
"""
OUTPUTS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(256, 1024), nn.Linear(1024, 256)
    def forward(self, x): return self.b(torch.relu(self.a(x))), torch.ones(len(x), dtype=torch.long, device=x.device)
def loss_of(net, x, y): return nn.functional.mse_loss(net(x)[0], y)
"""
SCRIPT = """
import torch
from torch import nn
{net}
net = Net().cuda()
calls = 0
def called(*_):
    global calls
    calls += 1
net.a.register_forward_hook(called)
optimizer = torch.optim.AdamW(net.parameters())
for step in range(3):
    x, y = (torch.randn({samples}, 128, 256, device="cuda") for _ in range(2))
    loss_of(net, x, y).backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 0: calls = 0
print(calls, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
"""


@pytest.mark.parametrize("net, passes", [(OWN_LOSS, 1), (OUTPUTS, 2)])
@pytest.mark.parametrize("samples, few_calls", [(32, 3), (13, 5)])
def test_the_first_parts_show_what_all_take(run, net, passes, samples, few_calls):
    """Of 13 samples in 8 parts the first five have two, and the others one."""

    def printed(**more):
        env = {"PLIMSOLL_PLAN": json.dumps({"version": 1, "remedies": [{"id": "micro-batches", "parts": 8}]}), **more}
        r = run(SCRIPT.format(net=net, samples=samples), stop="until-exit", env=env)
        assert r.returncode == 0, r.stderr
        calls, *memory = map(int, r.stdout.splitlines()[-1].split())
        return calls / 2 / passes, memory

    (all_calls, all_memory), (calls, memory) = printed(), printed(PLIMSOLL_FEW_PARTS="3:0")
    assert (all_calls, calls) == (8, few_calls)
    assert memory == all_memory
    if net is OWN_LOSS:
        assert printed(PLIMSOLL_FEW_PARTS="3:3") == (all_calls, all_memory), "first batches with all parts"


@pytest.mark.parametrize("net", [OWN_LOSS, OUTPUTS])
def test_parts_that_are_left_out_are_counted(run, net):
    def work(**more):
        plan = json.dumps({"version": 1, "remedies": [{"id": "micro-batches", "parts": 8}]})
        r = run(SCRIPT.format(net=net, samples=32), stop="until-exit", env={"PLIMSOLL_PLAN": plan, "PLIMSOLL_METER": "1", **more})
        assert r.returncode == 0, r.stderr
        products = [it for it in r.process.one("work")["ops"] if it["op"].startswith("matmul")]
        return sum(it["flops"] * it["count"] for it in products), sum(it["count"] for it in products)

    assert work(PLIMSOLL_FEW_PARTS="3:0") == work()
