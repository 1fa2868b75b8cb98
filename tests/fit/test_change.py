"""The change that a person would make: what `plimsoll fit` writes as a diff applies, and the patched script takes what
the plan takes. Both are run on the phantom."""

import json
import shutil
import subprocess

import pytest
from harness import PYTHON

FUNCTION = '''
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))


def main():
    block, name, checkpointed = 1, 2, 3  # Names that a change must not take.
    model = nn.Sequential(*(Block() for _ in range(12)), nn.Linear(256, 10)).cuda()
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=1e-3,
    )
    for step in range(6):
        x, y = torch.randn(8192, 256, device="cuda"), torch.randint(10, (8192,), device="cuda")
        logits = model(x)
        # The loss; backward comes after it.
        loss = F.cross_entropy(
            logits,
            y,
        )
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        assert (block, name, checkpointed) == (1, 2, 3) or checkpointed != 3


main()
'''

MODULE = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel
model = GPT2LMHeadModel(GPT2Config(vocab_size=1000, n_embd=128, n_layer=8, n_head=4)).cuda().train()
optimizer = torch.optim.Adam(model.parameters(), 1e-4, weight_decay=0.1)
for step in range(6):
    tokens = torch.randint(1000, (16, 512), device="cuda")
    if step >= 0:
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
    optimizer.step(); optimizer.zero_grad(set_to_none=False)
"""

GROUPS = FUNCTION.replace(
    """        model.parameters(),
""",
    """        [
            {"params": [it for it in model.parameters() if it.dim() > 1]},
            {"params": [it for it in model.parameters() if it.dim() < 2], "weight_decay": 0.0},
        ],
""",
)

WIDE = """
import torch
model = torch.nn.Linear(4096, 4096).cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-4, weight_decay=0.1)
for step in range(6):
    loss = model(torch.randn(64, 4096, device="cuda")).mean()
    loss.backward()
    optimizer.step(); optimizer.zero_grad(set_to_none=False)
"""

CASES = [
    pytest.param("autocast", FUNCTION, "a100-40g", 0.8, marks=pytest.mark.soak),
    pytest.param("autocast-fp16", FUNCTION, "t4", 0.8, marks=pytest.mark.soak),
    ("checkpoint", FUNCTION, "t4", 0.5),
    pytest.param("checkpoint", MODULE, "t4", 0.5, marks=pytest.mark.soak),
    pytest.param("checkpoint", GROUPS, "t4", 0.5, marks=pytest.mark.soak),
    pytest.param("sgd", WIDE, "t4", 0.7, marks=pytest.mark.soak),
]


@pytest.mark.skipif(shutil.which("patch") is None, reason="there is no `patch`")
@pytest.mark.parametrize("id, program, card, share", CASES)
def test_the_patched_script_takes_what_the_plan_takes(plimsoll, id, program, card, share):
    plimsoll.script(program)
    plain = plimsoll.predict(PYTHON, "train.py", options=("--gpu", card)).report
    beside = plain["safe_bytes"] - plain["peak_allocated_bytes"]
    budget = beside + int(share * plain["peak_allocated_bytes"])
    told = plimsoll.folder / "fit.json"
    options = ["--gpu", card, "--budget", budget, "--allow", id, "--json", told]
    ran = plimsoll.run("fit", *options, "--", PYTHON, "train.py", timeout=900)
    assert ran.code == 0, ran
    answer = json.loads(told.read_text())
    plan = answer["plans"][0]
    assert answer["change"]["by_hand"] == [] and [it.split()[0] for it in plan["remedies"]] == [id]
    diff = (plimsoll.folder / "plan.diff").read_text()
    assert diff == answer["change"]["diff"]
    patched = subprocess.run(["patch", "-p0"], input=diff, text=True, capture_output=True, cwd=plimsoll.folder)
    assert patched.returncode == 0, patched
    after = plimsoll.predict(PYTHON, "train.py", options=("--gpu", card)).report
    for peak in ("peak_allocated_bytes", "peak_reserved_bytes"):
        assert after[peak] == pytest.approx(plan[peak], rel=0.01), (peak, after[peak], plan[peak])
        assert after[peak] < plain[peak]


IN_PARTS = """
import sys, torch
from torch import nn
device = sys.argv[1]
class Output(dict):
    __getattr__ = dict.__getitem__
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(512, 64)
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64)) for _ in range(4)])
    def forward(self, input_ids, labels):
        logits = self.layers(self.table(input_ids)) @ self.table.weight.T
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return Output(loss=loss)
torch.manual_seed(0)
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    ids = torch.randint(0, 512, (24, int(sys.argv[2])))
    # Rows differ in how many labels count.
    labels = ids.masked_fill(torch.arange(ids.shape[1])[None] > 8 + 9 * torch.arange(24)[:, None], -100)
    batch = {"input_ids": ids.to(device), "labels": labels.to(device)}
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"{loss.item():.4f}")
print(f"{sum(it.double().sum().item() for it in model.parameters()):.4f}")
"""


# Under autocast, with what belongs to a step in one line.
IN_ONE_LINE = (
    IN_PARTS.replace("    loss = model(**batch).loss\n", "    with torch.autocast(device, torch.bfloat16, device == 'cuda'):\n        loss = model(**batch).loss\n")
    .replace("    optimizer.step()\n    optimizer.zero_grad()\n", "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    opt.step(); sched.step(); opt.zero_grad()\n")
    .replace("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n", "opt = torch.optim.SGD(model.parameters(), lr=0.1)\nsched = torch.optim.lr_scheduler.StepLR(opt, 2)\n")
)


@pytest.mark.skipif(shutil.which("patch") is None, reason="there is no `patch`")
@pytest.mark.soak
@pytest.mark.parametrize("program", [IN_PARTS, IN_ONE_LINE], ids=["a statement a line", "several in a line"])
def test_the_change_puts_a_batch_through_in_parts_and_computes_the_same(plimsoll, program):
    plimsoll.script(program)
    on_gpu, on_cpu = [PYTHON, "train.py", "cuda", "512"], [PYTHON, "train.py", "cpu", "64"]
    plain = plimsoll.predict(*on_gpu, options=("--gpu", "t4")).report
    budget = plain["safe_bytes"] - plain["peak_allocated_bytes"] // 2
    told = plimsoll.folder / "fit.json"
    ran = plimsoll.run("fit", "--gpu", "t4", "--budget", budget, "--allow", "micro-batches", "--json", told, "--", *on_gpu, timeout=900)
    assert ran.code == 0, ran
    answer = json.loads(told.read_text())
    assert answer["change"]["by_hand"] == [], answer["change"]
    before = subprocess.run(on_cpu, capture_output=True, text=True, check=True, cwd=plimsoll.folder).stdout
    subprocess.run(["patch", "-p0"], input=(plimsoll.folder / "plan.diff").read_text(), text=True, check=True, cwd=plimsoll.folder)
    assert subprocess.run(on_cpu, capture_output=True, text=True, check=True, cwd=plimsoll.folder).stdout == before
    after = plimsoll.predict(*on_gpu, options=("--gpu", "t4")).report
    assert after["safe_bytes"] <= budget, (after["safe_bytes"], budget, answer["plans"][0])


SEVERAL = """
import torch
a, b = torch.nn.Linear(4096, 4096).cuda(), torch.nn.Linear(4096, 4096).cuda()
first, second = torch.optim.Adam(a.parameters()), torch.optim.Adam(b.parameters())
for _ in range(6):
    a(b(torch.randn(64, 4096, device="cuda"))).sum().backward()
    for optimizer in (first, second):
        optimizer.step()
        optimizer.zero_grad()
"""


def test_what_is_not_certain_is_left_to_a_person(plimsoll):
    """Two optimizers in one statement: which is which, a diff cannot know."""
    plimsoll.script(SEVERAL)
    plain = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "t4")).report
    budget = plain["safe_bytes"] - plain["peak_allocated_bytes"] // 4
    told = plimsoll.folder / "fit.json"
    ran = plimsoll.run("fit", "--gpu", "t4", "--budget", budget, "--allow", "sgd", "--json", told, "--", PYTHON, "train.py")
    assert ran.code == 0, ran
    assert json.loads(told.read_text())["change"] == {"diff": "", "by_hand": ["sgd"]}
    assert "Or by hand (the code is in plan.toml):" in ran.stdout and not (plimsoll.folder / "plan.diff").exists()
    assert "# By hand instead of sgd:\n#     " in (plimsoll.folder / "plan.toml").read_text()
