"""Remedies on the phantom: that they take away what they say, where a program has that."""

import json

import pytest
from harness import PYTHON, ROOT, binary

WIDE = """
import torch
with torch.device("cuda"):
    model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(16)))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(64, 2048, device="cuda")).pow(2).mean().backward()
    optimizer.step()
"""
WEIGHTS = 16 * (2048 * 2048 + 2048) * 4


def reports(plimsoll, program, remedies, options=("--gpu", "a100-40g"), environment=None):
    """Without and with them, these in `environment`: a table of the plan for each."""
    plimsoll.script(program)
    tables = ["[[remedy]]\n" + "".join("%s = %s\n" % (k, json.dumps(v)) for k, v in it.items()) for it in remedies]
    (plimsoll.folder / "plan.toml").write_text("version = 1\n" + "".join(tables))
    command = (PYTHON, "train.py")
    plain = plimsoll.predict(*command, options=options)
    changed = plimsoll.predict(*command, options=(*options, "--plan", "plan.toml"), environment=environment)
    assert (plain.code, changed.code) == (0, 0), (plain, changed)
    return plain.report, changed.report


def saved(reports, key="peak_allocated_bytes"):
    plain, changed = reports
    return plain[key] - changed[key]


def test_the_optimizers_state_is_not_on_the_device(plimsoll):
    """All of it but what 64 MiB of weights have; AdamW's update of a few at a time is smaller too."""
    remedies = [{"id": "optimizer-offload"}]
    assert 2 * WEIGHTS - (160 << 20) <= saved(reports(plimsoll, WIDE, remedies)) <= 3 * WEIGHTS


def test_a_plan_is_checked_as_it_is_run(plimsoll):
    """With `predict --plan` as with `run --plan` inside; a plan that cannot be read is refused before anything runs."""
    options = ("--gpu", "a100-40g")
    _, checked = reports(plimsoll, WIDE, [{"id": "optimizer-offload"}], options)
    inside = plimsoll.predict(binary(), "run", "--plan", "plan.toml", "--", PYTHON, "train.py", options=options).report
    assert checked["peak_allocated_bytes"] == inside["peak_allocated_bytes"]
    assert checked["safe_bytes"] == inside["safe_bytes"]
    (plimsoll.folder / "plan.toml").write_text("version = 9\n")
    ran = plimsoll.run("predict", *options, "--plan", "plan.toml", "--", PYTHON, "train.py")
    ran.assert_sentence("plan.toml", "version is 9")


OWN_LOSS = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(6)])
    def forward(self, x, labels): return {"loss": nn.functional.mse_loss(self.layers(x), labels)}
model = Model().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    x = torch.randn(64, 1024, device="cuda")
    model(x, labels=x)["loss"].backward(); optimizer.step(); optimizer.zero_grad()
"""


def test_gradients_of_parts_have_the_line_that_called_the_model(plimsoll):
    """Its backward passes run within that call."""
    _, parts = reports(plimsoll, OWN_LOSS, [{"id": "micro-batches", "parts": 4}])
    origins = {it["origin"] for it in parts["top_lines"]}
    assert "no_stack" not in origins, parts["top_lines"]
    # A row has the name of what it has most of: as large as all gradients are the temporaries that the parts add up to them.
    gradients = parts["categories"]["gradients"]
    assert 24 << 20 <= gradients, parts["categories"]
    assert any(it["origin"] == "backward" and it["line"] == 13 and gradients <= it["bytes"] for it in parts["top_lines"]), parts["top_lines"]


BLOCKS = """
import torch
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(2048, 2048)
    def forward(self, x):
        return self.inner(x)
with torch.device("cuda"):
    model = torch.nn.Sequential(*(Block() for _ in range(16)))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(64, 2048, device="cuda")).pow(2).mean().backward()
    optimizer.step()
"""


def test_weights_are_not_on_the_device(plimsoll):
    """All but those of a block or two; gradients are, and with the optimizer's state away they are nearly all there is."""
    both = [{"id": "parameter-offload"}, {"id": "optimizer-offload"}]
    plain, changed = reports(plimsoll, BLOCKS, both)
    assert saved((plain, changed)) >= 3 * WEIGHTS - (260 << 20)
    assert changed["peak_allocated_bytes"] <= WEIGHTS + (300 << 20), changed["peak_allocated_bytes"]


def test_blocks_on_two_devices(plimsoll):
    """Half of everything on each, in one process."""
    plan = [{"id": "model-parallel", "gpus": 2}]
    plain, changed = reports(plimsoll, BLOCKS, plan)
    whole = 4 * WEIGHTS
    assert saved((plain, changed)) >= 0.45 * whole
    assert changed["peak_allocated_bytes"] >= 0.45 * whole


def test_another_split_than_half(plimsoll):
    """The device that takes most has three quarters of the blocks, not half of them. A split for three devices is refused."""
    _, half = reports(plimsoll, BLOCKS, [{"id": "model-parallel", "gpus": 2}])
    _, most = reports(plimsoll, BLOCKS, [{"id": "model-parallel", "gpus": 2, "first": [4]}])
    assert 1.4 <= most["peak_allocated_bytes"] / half["peak_allocated_bytes"] <= 1.6
    plimsoll.folder.joinpath("plan.toml").write_text('version = 1\n[[remedy]]\nid = "model-parallel"\ngpus = 2\nfirst = [4, 8]\n')
    ran = plimsoll.predict(binary(), "run", "--plan", "plan.toml", "--", PYTHON, "train.py", options=("--gpu", "a100-40g"))
    assert ran.code == 2 and "its 16 blocks on 2 devices need 1 of the block numbers, ascending, from 1" in ran.stderr, ran


CHAIN = """
import torch
widths = [1024 + 8 * i for i in range(17)]  # No two layers are alike: there are no repeated blocks.
with torch.device("cuda"):
    model = torch.nn.Sequential(*(torch.nn.Linear(a, b) for a, b in zip(widths, widths[1:])))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(20_000, 1024, device="cuda")).pow(2).mean().backward()
    optimizer.step()
"""


def test_a_chain_runs_in_so_many_segments(plimsoll):
    """In two pieces eight of the sixteen layers' results are there in backward, in four four, and those between the pieces."""
    _, two = reports(plimsoll, CHAIN, [{"id": "checkpoint", "segments": 2}])
    plain, four = reports(plimsoll, CHAIN, [{"id": "checkpoint", "segments": 4}])
    result = 20_000 * 1024 * 4
    assert saved((plain, two)) >= 5 * result
    assert saved((two, four)) >= result, (two["peak_allocated_bytes"], four["peak_allocated_bytes"])


DISTRIBUTED = """
import os, torch
torch.distributed.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
with torch.device("cuda"):
    model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(16)))
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(64, 2048, device="cuda")).pow(2).mean().backward()
    optimizer.step()
"""


def test_gradients_are_there_once(plimsoll):
    options = ("--gpu", "a100-40g", "--world-size", "2")
    assert saved(reports(plimsoll, DISTRIBUTED, [{"id": "bucket-view"}], options)) == pytest.approx(WEIGHTS, rel=0.1)


EVALUATES = """
import torch
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for size in (50_000, 60_000, 60_000, 60_000, 60_000):
    model.eval()
    with torch.no_grad():
        model(torch.randn(40_000, 1024, device="cuda"))
    model.train()
    optimizer.zero_grad()
    model(torch.randn(size, 1024, device="cuda")).pow(2).mean().backward()
    optimizer.step()
"""


@pytest.mark.matrix(2)
@pytest.mark.parametrize("after", ["evaluation", "forward", "backward", "step"])
def test_memory_that_nothing_uses_is_given_back(plimsoll, after):
    """What evaluation took is too small for training, and what the first step took for the second."""
    plain, changed = reports(plimsoll, EVALUATES, [{"id": "empty-cache", "after": after}])
    assert changed["peak_allocated_bytes"] == plain["peak_allocated_bytes"]
    least = (100 << 20) if after != "forward" else 0  # In the middle of a step there is less to give back.
    assert plain["peak_reserved_bytes"] - changed["peak_reserved_bytes"] >= least


def test_the_optimizers_state_is_in_8_bits(plimsoll):
    """Two bytes for each weight instead of eight. `make test-setup` puts torchao beside the environment."""
    folder = str(ROOT / "target/torchao")
    assert saved(reports(plimsoll, WIDE, [{"id": "optimizer-8bit"}], environment=plimsoll.environment(PYTHONPATH=folder))) >= 1.2 * WEIGHTS
