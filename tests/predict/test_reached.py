"""What a run sees does not depend on who else uses the machine, and an evaluation that the script comes to is seen, or is missed in the verdict."""

import os
import re
import subprocess
import sys

import pytest

MODEL = """
import argparse, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
def evaluate():
    net.eval()
    with torch.no_grad():
        kept = [net(torch.randn(50_000, 64, device="cuda")) for _ in range(4)]
    net.train()
def loss_of(x): return net(x.cuda()).square().mean()
"""

PLAIN = (
    MODEL
    + """
args = argparse.Namespace(eval_every=EVERY)
net.cuda(); opt = torch.optim.AdamW(net.parameters())
def train(every):
    for step in range(1, 1_000_000):
        loss_of(torch.randn(16, 64)).backward(); opt.step(); opt.zero_grad()
        if step % every == 0: evaluate()
train(args.eval_every)
"""
)

ACCELERATE = (
    MODEL
    + """
from accelerate import Accelerator
accelerator, args = Accelerator(), argparse.Namespace(eval_steps=EVERY)
loader = DataLoader(TensorDataset(torch.randn(64_000, 64)), 16)
net, opt, loader = accelerator.prepare(net, torch.optim.AdamW(net.parameters()), loader)
done = 0
for epoch in range(3):
    for (x,) in loader:
        accelerator.backward(loss_of(x)); opt.step(); opt.zero_grad()
        done += 1
        if done % args.eval_steps == 0:
            evaluate()
"""
)

EPOCHS = (
    MODEL
    + """
args = argparse.Namespace(val_every=EVERY)
net.cuda(); opt = torch.optim.AdamW(net.parameters())
loader = DataLoader(TensorDataset(torch.randn(16_000, 64)), 16)
def one(loader):
    for (x,) in loader:
        loss_of(x).backward(); opt.step(); opt.zero_grad()
for COUNTER in range(100_000):
    one(loader)
    if (COUNTER + 1) % args.val_every == 0:
        evaluate()
"""
)

LIGHTNING = """
import torch, lightning as L
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
class Module(L.LightningModule):
    def __init__(self):
        super().__init__(); self.net = nn.Linear(64, 10)
    def training_step(self, b, i): return self.net(b[0]).square().mean()
    def validation_step(self, b, i): self.net(b[0].repeat(3000, 1))
    def configure_optimizers(self): return torch.optim.AdamW(self.parameters())
loader = DataLoader(TensorDataset(torch.randn(64_000, 64)), 16)
few = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "limit_val_batches": 4, "enable_model_summary": False, "num_sanity_val_steps": 0}
L.Trainer(max_epochs=2, accelerator="gpu", devices=1, val_check_interval=EVERY, **few).fit(Module(), loader, loader)
"""

SCRIPTS = {"a plain loop": PLAIN, "accelerate": ACCELERATE, "lightning": LIGHTNING}

BUSY = [sys.executable, "-c", "while True: pass"]


@pytest.fixture
def busy_machine():
    """One processor for the run and for two programs more; the others are left to other tests."""
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(all_of_them)})
    programs = [subprocess.Popen(BUSY) for _ in range(2)]
    yield
    os.sched_setaffinity(0, all_of_them)
    for it in programs:
        it.kill()
        it.wait()


@pytest.mark.matrix(1)
@pytest.mark.parametrize("kind", sorted(SCRIPTS))
def test_an_evaluation_far_away_is_seen_on_a_busy_machine(plimsoll, busy_machine, kind):
    script = plimsoll.script(SCRIPTS[kind].replace("EVERY", "3000"))
    ran = plimsoll.predict(script, options=("--gpu", "rtx3090"))
    seen = ran.report["seen"]
    assert (ran.code, ran.report["verdict"], seen["evaluation"], seen["awaited_at"]) == (0, "fits", True, None), ran.stderr
    # 16 steps after the third, what a loader has fetched ahead, and the step after the evaluation.
    assert 19 <= ran.report["steps_seen"] <= 23
    assert any("come early, by a shorter interval" in it["text"] for it in ran.report["notes"]) == (kind != "lightning")


def test_an_evaluation_that_is_not_reached_is_missed_in_the_verdict(plimsoll):
    script = plimsoll.script(PLAIN.replace("EVERY", "7").replace("step % every", "step % 900_000"))
    ran = plimsoll.predict(script, options=("--gpu", "rtx3090"))
    assert ran.stdout.lstrip().startswith("FITS SO FAR rtx3090"), ran
    assert re.search(r"the script's evaluation \(train\.py:\d+ in train\) was not reached", " ".join(ran.stdout.split())), ran
    report = ran.report
    assert (ran.code, report["verdict"], report["outcome"], report["safe_bytes"]) == (2, "fits_so_far", "fits", None)
    seen = report["seen"]
    assert (seen["missing"], seen["awaited_at"]["text"]) == ("the script's evaluation", "if step % 900_000 == 0: evaluate()")


@pytest.mark.matrix(1)
@pytest.mark.parametrize("counter", ["e", "epoch"])
def test_an_evaluation_after_many_epochs_is_seen_after_one(plimsoll, counter):
    ran = plimsoll.predict(plimsoll.script(EPOCHS.replace("EVERY", "3000").replace("COUNTER", counter)), options=("--gpu", "rtx3090"))
    seen = ran.report["seen"]
    assert (ran.code, ran.report["verdict"], seen["evaluation"], seen["awaited_at"]) == (0, "fits", True, None), ran.stderr
    assert ran.report["steps_seen"] <= 25 and ran.report["deciding_phase"] == "first_evaluation", ran.report


@pytest.mark.parametrize("far", [False, True])
def test_an_evaluation_after_so_many_epochs_as_the_text_says_is_seen_or_missed_in_the_verdict(plimsoll, far):
    text = EPOCHS.replace("EVERY", "9").replace("COUNTER", "epoch").replace("args.val_every", "90_000" if far else "50")
    if far:
        # Then no loader says what an epoch is: each is a step, and 90,000 are too many.
        text = text.replace("    one(loader)", "    loss_of(x).backward(); opt.step(); opt.zero_grad()")
        text = text.replace("for epoch in", "(x,) = next(iter(loader))\nfor epoch in")
    ran = plimsoll.predict(plimsoll.script(text), options=("--gpu", "rtx3090"))
    seen = ran.report["seen"]
    if far:
        assert (ran.code, ran.report["verdict"], seen["missing"]) == (2, "fits_so_far", "the script's evaluation"), ran
        assert seen["awaited_at"]["text"].startswith("if (epoch + 1) % 90_000 == 0:")
    else:
        assert (ran.code, ran.report["verdict"], seen["evaluation"], seen["awaited_at"]) == (0, "fits", True, None), ran.stderr
        # Epochs end early: of two steps each.
        assert ran.report["steps_seen"] <= 130 and ran.report["deciding_phase"] == "first_evaluation", ran.report


SIZES = """
import torch
net = torch.nn.Conv2d(3, 8, 3).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
for {name} in (64, 128, 256):
    for step in range({steps}):
        net(torch.zeros(2, 3, {used}, {used}, device="cuda")).sum().backward(); opt.step(); opt.zero_grad()
    print({name}, step)
"""


@pytest.mark.parametrize("name, used, steps, verdict", [("size", "size", 40_000, "fits_so_far"), ("size", "size", 100, "fits"), ("epoch", "64", 40_000, "fits")])
def test_later_turns_of_a_loop_whose_variable_the_steps_use_are_run_or_named(plimsoll, name, used, steps, verdict):
    plimsoll.script(SIZES.format(name=name, used=used, steps=steps))
    ran = plimsoll.predict("train.py", options=("--gpu", "t4"))
    assert ran.report["verdict"] == verdict and ran.code == (2 if verdict == "fits_so_far" else 0), ran
    stage = ran.report["seen"]["stage"]
    if verdict == "fits":
        assert stage is None and (ran.report["steps_seen"] > 200) == (used == "size"), ran.report["seen"]
        return
    assert ran.report["safe_bytes"] is None and (stage["at"]["line"], stage["variable"], stage["turn"], stage["turns"]) == (5, "size", 1, 3), stage
    assert "the loop over `size` (train.py:5) was seen in turn 1 of 3 only" in " ".join(ran.stdout.split()), ran.stdout


TRANSFORMERS = (
    MODEL
    + """
from transformers import Trainer, TrainerCallback, TrainingArguments
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.net, self.repeat = net, 1
    def forward(self, x=None): return {"loss": self.net(x.repeat(self.repeat, 1)).square().mean()}
class Grow(TrainerCallback):
    def on_epoch_begin(self, args, state, control, model=None, **kwargs):
        if state.epoch == AT: model.repeat = 50_000
class Data(torch.utils.data.Dataset):
    def __len__(self): return 1600
    def __getitem__(self, i): return {"x": torch.zeros(64)}
few = {"per_device_train_batch_size": 16, "save_strategy": "no", "report_to": [], "disable_tqdm": True, "output_dir": "out"}
Trainer(model=Net(), args=TrainingArguments(num_train_epochs=30, **few), train_dataset=Data(), callbacks=[Grow()]).train()
"""
)

LIGHTNING_THAT_GROWS = (
    LIGHTNING.replace("self.net(b[0])", "self.net(b[0].repeat(self.times, 1))")
    .replace("    def val", "    times = 1\n    def on_train_epoch_start(self):\n        if self.current_epoch == AT: self.times = 50_000\n    def val", 1)
    .replace("max_epochs=2", "max_epochs=30")
    .replace("val_check_interval=EVERY, ", "")
)


@pytest.mark.soak
@pytest.mark.parametrize("at", [12, 40])
@pytest.mark.parametrize("kind, script", [("transformers", TRANSFORMERS), ("lightning", LIGHTNING_THAT_GROWS)])
def test_what_a_framework_does_in_a_later_epoch_is_seen(plimsoll, kind, script, at):
    pytest.importorskip(kind)
    ran = plimsoll.predict(plimsoll.script(script.replace("AT", str(at), 1)), options=("--gpu", "rtx3090"))
    assert (ran.code, ran.report["verdict"], ran.report["seen"]["stage"]) == (0, "fits", None), ran
    # An epoch that does not come is not waited for.
    assert (100 << 20 < ran.report["peak_allocated_bytes"]) == (at < 30), ran.report["peak_allocated_bytes"]


@pytest.mark.soak
def test_what_a_framework_does_in_a_step_far_away_is_named(plimsoll):
    pytest.importorskip("transformers")
    text = TRANSFORMERS.replace("on_epoch_begin", "on_step_begin").replace("state.epoch == AT", "state.global_step == 90_000").replace("return 1600", "return 160_000")
    ran = plimsoll.predict(plimsoll.script(text), options=("--gpu", "rtx3090"))
    assert (ran.code, ran.report["verdict"], ran.report["seen"]["stage"]["from_turn"]) == (2, "fits_so_far", 90_001), ran
    assert re.search(r"plimsoll ended the run in turn \d+ of [\d,]+ \(`global_step`\), and train.py:\d+ in on_step_begin changes", " ".join(ran.stdout.split())), ran
