"""What a promise covers: whatever plimsoll cut, the verdict and the safe size say so; and what grows, or what no batch had, is no promise."""

import re

import pytest
from harness import PYTHON

HEAD = """
import torch, torch.nn as nn
from torch.utils.data import DataLoader, Dataset
net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 16)).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
def step(x):
    opt.zero_grad(); loss = net(x).pow(2).mean(); loss.backward(); opt.step()
    return loss
class Data(Dataset):
    def __len__(self): return 400
    def __getitem__(self, i): return torch.randn(256)
"""

CUT = {
    "epochs of a loader": ("for epoch in range(2):\n    for x in DataLoader(Data(), 1): step(x.cuda())", r"for the \d+ batches seen of 800: needs"),
    "a loader in a function": (
        "def train(loader, epochs):\n    for epoch in range(epochs):\n        one(loader)\ndef one(loader):\n    for i, x in enumerate(loader): step(x.cuda())\ntrain(DataLoader(Data(), 4), 30)",
        r"for the \d+ batches seen of 3,000: needs",
    ),
    "epochs without an end": ("while True:\n    for x in DataLoader(Data(), 1): step(x.cuda())", r"for the \d+ batches seen of 400 an epoch: needs"),
    "a loop that counts": ("for i in range(3000): step(torch.randn(8, 256).cuda())", r"for the \d+ training steps seen of 3,000: needs"),
    "a loop that accumulates": (
        "for i in range(8000):\n    net(torch.randn(8, 256).cuda()).pow(2).mean().backward()\n    if i % 4 == 3: opt.step(); opt.zero_grad()",
        r"for the \d+ training steps seen of 2,000: needs",
    ),
    "a loop of nobody knows how many": ("import itertools\nfor i in itertools.count(): step(torch.randn(8, 256).cuda())", r"for the \d+ training steps seen: needs"),
}


@pytest.mark.matrix(2)
@pytest.mark.parametrize("what", sorted(CUT))
def test_what_was_cut_is_what_the_promise_is_about(plimsoll, what):
    loop, words = CUT[what]
    plimsoll.script(HEAD + loop)
    ran = plimsoll.predict("train.py", options=("--gpu", "rtx3090"))
    text = " ".join(ran.stdout.split())
    assert ran.code == 0, ran
    (promise,) = re.findall(words, text)
    assert promise.replace(": needs", "").removeprefix("for ") == ran.report["seen"]["covers"]["words"]
    assert re.search(r"to be safe for the \d+ [a-z ]+ seen", text) and "ran to its end" not in text
    assert not ran.report["seen"]["whole"]


def test_the_batches_seen_are_those_that_the_script_got(plimsoll):
    """The end of an epoch, where a loader is asked once more, is none."""
    plimsoll.script(HEAD + "took = 0\nfor epoch in range(3):\n    for x in DataLoader(Data(), 50): step(x.cuda()); took += 1\nprint('took', took)")
    ran = plimsoll.predict("train.py", options=("--gpu", "rtx3090"))
    (took,) = re.findall(r"took (\d+)", ran.stdout)
    assert f"for the {took} batches seen of 24: needs" in " ".join(ran.stdout.split())


LATER = {
    "longer batches": "for epoch in range(30):\n    for x in DataLoader(Data(), 4 if epoch < 12 else 200): step(x.cuda().repeat(1000, 1))",
    "all layers": "net[0].requires_grad_(False)\nopt.add_param_group({'params': nn.Linear(8, 8).cuda().parameters()})\nfor epoch in range(30):\n"
    "    if epoch == 12: net.append(nn.Linear(16, 2_000_000).cuda())\n    for x in DataLoader(Data(), 4): step(x.cuda())",
    "after some steps": "for i in range(3000):\n    step(torch.randn(200_000 if i > 400 else 8, 256).cuda())",
}


@pytest.mark.matrix(1)
@pytest.mark.parametrize("what", sorted(LATER))
def test_what_a_later_turn_of_a_loop_does_is_seen(plimsoll, what):
    plimsoll.script(HEAD + LATER[what])
    ran = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "rtx4090"))
    assert ran.code == 0 and ran.report["verdict"] == "fits", ran
    assert ran.report["seen"]["stage"] is None and 400 << 20 < ran.report["safe_bytes"], ran.report


def test_what_a_turn_far_away_does_leaves_no_safe_size(plimsoll):
    plimsoll.script(HEAD + "i = 0\nwhile i < 100_000:\n    step(torch.randn(200_000 if i > 50_000 else 8, 256).cuda())\n    i += 1")
    ran = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "rtx4090"))
    assert (ran.code, ran.report["verdict"], ran.report["safe_bytes"]) == (2, "fits_so_far", None), ran
    stage = ran.report["seen"]["stage"]
    assert (stage["variable"], stage["from_turn"], stage["turns"], stage["at"]["line"]) == ("i", 50_002, 100_000, 14), stage


def test_an_error_in_a_turn_far_away_stands_beside_the_answer(plimsoll):
    plimsoll.script(HEAD + "for i in range(100_000):\n    step(torch.randn(8, 256).cuda())\n    if i == 50_000: raise RuntimeError('no more')")
    ran = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "rtx4090"))
    assert (ran.code, ran.report["verdict"]) == (0, "fits") and ran.report["safe_bytes"], ran
    assert re.search(r"- the script raises an error in turn 50,001 of 100,000 \(`i`, train.py:14\), and plimsoll ended the run in turn \d+", " ".join(ran.stdout.split())), ran


def test_a_script_that_ran_to_its_end_has_a_promise_without_a_limit(plimsoll):
    plimsoll.script(HEAD + "for i in range(4): step(torch.randn(8, 256).cuda())")
    ran = plimsoll.predict("train.py", options=("--gpu", "rtx3090"))
    assert ran.report["seen"] == {"whole": True, "evaluation": False, "missing": None, "awaited_at": None, "cut_loop": None, "stage": None, "after_loops_at": None, "ahead": None, "covers": None}
    assert "FITS rtx3090 (23.50 GiB): needs" in ran.stdout or "ran to its end: 4 training steps" in " ".join(ran.stdout.split())


LEAK = "kept = []\nfor i in range({steps}):\n    loss = step(torch.randn(8, 256).cuda()); kept.append(torch.zeros(384, device='cuda'))\n    del loss"


def test_a_slow_leak_is_in_the_safe_size(plimsoll):
    plimsoll.script(HEAD + LEAK.format(steps=450_000))
    ran = plimsoll.predict("train.py", options=("--gpu", "rtx3090"))
    assert ran.code == 0 and ran.report["verdict"] == "fits", ran
    assert ran.report["peak_device_bytes"] + 450_000 * 1536 < ran.report["safe_bytes"] < ran.report["peak_device_bytes"] + 450_000 * 2048
    assert "in the 450,000 steps of the script, which the safe size includes" in " ".join(ran.stdout.split())


def test_a_slow_leak_that_the_script_is_long_enough_for_runs_out(plimsoll):
    plimsoll.script(HEAD + LEAK.format(steps=45_000_000))
    ran = plimsoll.predict("train.py", options=("--gpu", "rtx3090"))
    assert ran.code == 1 and ran.report["verdict"] == "grows" and ran.report["safe_bytes"] is None, ran
    assert 10_000_000 < ran.report["runs_out_at_step"] < 20_000_000


GROWS = {
    "a bank that is joined": ("bank = torch.zeros(0, 256).cuda()\nfor i in range(200_000):\n    step(torch.randn(512, 256).cuda()); bank = torch.cat([bank, torch.randn(512, 256).cuda()])", 512 << 10),
    "a bank that the loss looks at": (
        "bank = torch.zeros(0, 16).cuda()\nfor i in range(200_000):\n    x = torch.randn(512, 256).cuda(); opt.zero_grad(); z = net(x)\n    (z @ torch.cat([z, bank]).t()).logsumexp(1).mean().backward(); opt.step()\n    bank = torch.cat([bank, z.detach()])",
        32 << 10,
    ),
    "a buffer that is padded, every other step": (
        "seen = torch.zeros(64, 1, device='cuda')\nfor i in range(200_000):\n    step(torch.randn(64, 256).cuda())\n    if i % 2: seen = nn.functional.pad(seen, (0, 4096))",
        512 << 10,
    ),
    "two banks of one line": (
        "banks = [torch.zeros(0, 256).cuda(), torch.zeros(0, 256).cuda()]\nfor i in range(200_000):\n    x = torch.randn(256, 256).cuda(); step(x)\n    banks = [torch.cat([it, x]) for it in banks]",
        512 << 10,
    ),
}


@pytest.mark.soak
@pytest.mark.parametrize("what", sorted(GROWS))
def test_growth_by_joining_is_growth(plimsoll, what):
    loop, per_step = GROWS[what]
    plimsoll.script(HEAD + loop)
    ran = plimsoll.predict("train.py", options=("--gpu", "rtx3090"))
    assert ran.code == 1 and ran.report["verdict"] == "grows", ran
    assert 0.9 * per_step <= ran.report["growth_bytes_per_step"] <= 1.15 * per_step
    assert ran.report["growth_at"]["file"].endswith("train.py")


NO_GROWTH = {
    "a bank of fixed length": "bank = torch.zeros(0, 256).cuda()\nfor i in range(20_000):\n    step(torch.randn(512, 256).cuda()); bank = torch.cat([bank, torch.randn(512, 256).cuda()])[-16384:]",
    "batches from short to long": "for n in range(64, 4096, 8):\n    x = torch.randn(n, 256).cuda(); loss = step(x); out = net(x)",
    "batches from short to long, once around": "for n in list(range(64, 1024, 8)) * 5:\n    x = torch.randn(64, n, 256).cuda(); loss = step(x)",
}


@pytest.mark.matrix(1)
@pytest.mark.parametrize("what", sorted(NO_GROWTH))
def test_what_fills_up_or_is_sorted_is_no_growth(plimsoll, what):
    plimsoll.script(HEAD + NO_GROWTH[what])
    ran = plimsoll.predict("train.py", options=("--gpu", "rtx3090"))
    assert ran.report["verdict"] == "fits", ran


VALIDATES = """
seen, best = [], None
for epoch in range(100):
    for x in DataLoader(Data(), 4): step(x.cuda())
    net.eval()
    {before}
    with torch.no_grad():
        for i in range(5): seen.append(net[0](torch.randn(8192, 256).cuda()))
    net.train()
    print(epoch, torch.cat(seen).mean().item())
"""


def test_what_each_evaluation_leaves_is_growth(plimsoll):
    plimsoll.script(HEAD + VALIDATES.format(before="pass"))
    ran = plimsoll.predict("train.py", options=("--gpu", "rtx3090"))
    assert ran.code == 1 and ran.report["verdict"] == "grows", ran
    assert ran.report["growth_bytes_per_evaluation"] == 40 << 20 and ran.report["growth_bytes_per_step"] is None
    assert 285 < ran.report["runs_out_at_evaluation"] < 300  # What they left is joined after each: it is there twice.
    text = " ".join(ran.stdout.split())
    assert "GROWS 40.0 MiB a evaluation" not in text and "GROWS 40.0 MiB an evaluation at train.py" in text


SHORT_EPOCHS = """
seen = []
for epoch in range({epochs}):
    for _ in range(10): step(torch.randn(64, 256).cuda())
    net.eval()
    with torch.no_grad():
        for i in range(25): seen.append(net[0](torch.randn(8192, 256).cuda()))
    net.train()
"""


def test_what_the_evaluations_of_short_epochs_leave_is_growth_however_fast_the_machine_is(plimsoll):
    plimsoll.script(HEAD + SHORT_EPOCHS.format(epochs=40))
    ran = plimsoll.predict("train.py", options=("--gpu", "h100-80g"))
    assert ran.code == 1 and ran.report["verdict"] == "grows", ran
    assert ran.report["growth_bytes_per_evaluation"] == 200 << 20 and ran.report["steps_seen"] == 30
    assert 380 < ran.report["runs_out_at_evaluation"] < 410


def test_what_the_next_evaluation_clears_is_no_growth(plimsoll):
    plimsoll.script(HEAD + VALIDATES.format(before="seen = []"))
    ran = plimsoll.predict("train.py", options=("--gpu", "rtx3090"))
    assert ran.code == 0 and ran.report["verdict"] == "fits", ran


def test_a_sample_that_no_batch_had_stands_beside_the_verdict_and_can_be_run(plimsoll):
    plimsoll.script(
        HEAD.replace("return torch.randn(256)", "return torch.randn(60_000 if i == 217 else 20, 256)")
        + "for epoch in range(2):\n    for x in DataLoader(Data(), 1): step(x[0].cuda())"
    )
    ran = plimsoll.predict("train.py", options=("--gpu", "rtx3090"))
    first = " ".join(ran.stdout.partition("At the peak")[0].split())
    assert "! sample 217 of the data set is far larger than those of the batches seen: it has 15,360,000 numbers" in first
    worst = plimsoll.predict("train.py", options=("--gpu", "rtx3090", "--worst-sample"))
    assert worst.report["peak_allocated_bytes"] > 3 * 15_360_000 * 4 > 5 * ran.report["peak_allocated_bytes"]


def test_that_the_script_failed_after_its_training_steps_is_said_beside_the_answer(plimsoll):
    """However much else there is to say."""
    reads = "".join("if net[0].weight[0, %d].item() > 1: pass\n" % n for n in range(6))
    plimsoll.script(HEAD + "for x in DataLoader(Data(), 1): step(x.cuda())\n" + reads + "raise ValueError('bad batch')\n")
    ran = plimsoll.predict(PYTHON, "train.py")
    assert ran.code == 0 and "Traceback" in ran.stderr, ran
    first = ran.stdout[: ran.stdout.index("At the peak")]
    assert "! after its training steps the script raised ValueError: bad batch at" in first, ran


AFTER_TRAINING = """
for i in range(6):
    opt.zero_grad(); (net(torch.randn(64, 256).cuda()) - net(torch.randn(64, 256).cuda())).pow(2).mean().backward(); opt.step()
kept = []
for i in range(40):
    net(torch.randn(64, 256).cuda()); kept.append(torch.zeros(2 << 18, device="cuda"))
"""


def test_what_passes_leave_after_the_last_step_is_counted_in_passes(plimsoll):
    """Two passes were a step; afterwards a pass is a pass."""
    plimsoll.script(HEAD + AFTER_TRAINING)
    ran = plimsoll.predict("train.py", options=("--gpu", "rtx3090", "--until-exit"))
    (found,) = [it for it in ran.report["findings"] if it["code"] == "leak/results-kept"]
    assert found["title"].startswith("results of 39 forward passes stay on the device: 78.1 MiB, 2.0 MiB more in each"), found["title"]
    assert "from 39 of 40 forward passes are still live: 2.0 MiB a forward pass" in " ".join(found["evidence"]["facts"])


UNSEEN = {
    "": "later steps",
    "    if i % 500 == 499: torch.save(net.state_dict(), 'net.pt')": "a checkpoint, later steps",
    "    if i % 500 == 0: torch.save(net.state_dict(), 'net.pt')": "later steps",
    "    if i % 500 == 499:\n        net.eval(); net(torch.randn(8, 256).cuda())": "an evaluation, later steps",
    "    # model.eval() after each epoch, and a checkpoint: torch.save()": "later steps",
}


@pytest.mark.parametrize("more", sorted(UNSEEN))
def test_only_what_the_script_has_is_said_to_be_unseen(plimsoll, more):
    plimsoll.script(HEAD + "for i in range(3000):\n    step(torch.randn(8, 256).cuda())\n" + more)
    ran = plimsoll.predict("train.py", options=("--gpu", "rtx3090", "--steps", "4"))
    assert ran.report["seen"]["missing"] == UNSEEN[more], ran
    assert f"not seen: {UNSEEN[more]}; --until-exit" in " ".join(ran.stdout.split())


PASSES = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(256, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 4096)).cuda()
found = torch.empty(0, 4096)
for i in range(2000):
    found = torch.cat((found, model(torch.rand(512, 256).cuda())[:1].cpu()))
"""


def test_a_script_of_passes_runs_out_in_a_pass(plimsoll):
    """It said "ran out in forward pass 251" and "runs out before the first forward pass"."""
    plimsoll.script(PASSES)
    ran = plimsoll.predict("train.py", options=("--memory", "2GiB", "--gpu", "rtx3090"))
    text = " ".join(ran.stdout.split())
    assert ran.code == 1 and "before the first forward pass" not in text, ran
    (grows,) = re.findall(r"ran out in forward pass ([\d,]+) of", text)
    assert f"runs out in forward pass {grows}, at train.py:6" in text, text
    assert f"When it ran out (forward pass {grows})" in text or f"When it ran out (in forward pass {grows})" in text, text


def test_what_grows_by_less_than_a_byte_is_no_growth(plimsoll):
    """Three modules are called for each 512 bytes that stay: "0 B more stay allocated"."""
    plimsoll.script(
        """
import torch
a, b, c = (torch.nn.Linear(64, 64).cuda() for _ in range(3))
kept = []
with torch.no_grad():
    for i in range(2000):
        x = c(b(a(torch.rand(8, 64, device="cuda"))))
        if i % 200 == 0: kept.append(x[0].clone())
"""
    )
    ran = plimsoll.predict("train.py", options=("--gpu", "rtx3090"))
    assert ran.code == 0 and " 0 B " not in ran.stdout, ran
