"""The callbacks for trainers, and the fixture for pytest, as their users write them."""

import json

import pytest
from harness import PYTHON, Plimsoll

HF = """
import torch, plimsoll.hf
from transformers import Trainer, TrainingArguments

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(256, 256)
    def forward(self, x, labels=None):
        out = self.layer(x)
        return {"loss": (out - labels).pow(2).mean(), "logits": out}

data = [{"x": torch.randn(256), "labels": torch.randn(256)} for _ in range(40)]
trainer = Trainer(
    Model(),
    TrainingArguments("out", per_device_train_batch_size=4, max_steps=6, logging_steps=3, report_to=[], save_strategy="no"),
    train_dataset=data,
    callbacks=[plimsoll.hf.Callback("run.zip")],
)
trainer.train()
logs = [it for it in trainer.state.log_history if "gpu_peak_reserved_gib" in it]
print(len(logs), all(0 < it["gpu_peak_allocated_gib"] <= it["gpu_peak_reserved_gib"] for it in logs))
"""

LIGHTNING = """
import torch, plimsoll.lightning
import lightning as L

class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(256, 256)
    def training_step(self, batch, index):
        if index == 4:
            batch = torch.zeros(1 << 40, device=self.device)
        return self.layer(batch).pow(2).mean()
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

loader = torch.utils.data.DataLoader(torch.randn(40, 256), batch_size=4)
trainer = L.Trainer(
    accelerator="gpu", devices=1, max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, callbacks=[plimsoll.lightning.Callback("run.zip")],
)
try:
    trainer.fit(Model(), loader)
except torch.OutOfMemoryError:
    print("ran out", trainer.callback_metrics["gpu_peak_reserved_gib"].item() > 0)
"""


def explained(program):
    plimsoll = Plimsoll(program.folder, program._cache)
    plimsoll.run("explain", "run.zip", "--json", "found.json")
    return json.loads(program.folder.joinpath("found.json").read_text())


def test_hf_trainer(program):
    ran = program.run(HF, environment=program.on_a_device("--gpu", "t4"))
    # The last log is the summary of the training.
    assert ran.returncode == 0 and ran.stdout.splitlines()[-1] == "3 True", ran
    assert explained(program)["steps"] == 6


@pytest.mark.soak
def test_lightning_keeps_the_recording_of_what_failed(program):
    ran = program.run(LIGHTNING, environment=program.on_a_device("--gpu", "t4"))
    assert ran.returncode == 0 and ran.stdout.splitlines()[-1] == "ran out True", ran
    found = explained(program)
    assert found["steps"] == 4 and found["oom"] is not None


BUDGET = """
import torch

def train(batch):
    layer = torch.nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    for _ in range(5):
        optimizer.zero_grad()
        layer(torch.randn(batch, 1024, device="cuda")).sum().backward()
        optimizer.step()

def test_fits(gpu_memory_budget):
    answer = gpu_memory_budget("2GiB").predict(train, 64, gpu="rtx4090")
    assert answer.fits

def test_is_over(gpu_memory_budget):
    gpu_memory_budget("2GiB").predict(train, 1_000_000, gpu="rtx4090")

def test_runs_out(gpu_memory_budget):
    gpu_memory_budget("2GiB").predict(train, 1_000_000_000, gpu="rtx4090")

def test_here(gpu_memory_budget):
    with gpu_memory_budget("1GiB"):
        train(64)

def test_here_over(gpu_memory_budget):
    with gpu_memory_budget("1GiB"):
        train(1_000_000)
"""


@pytest.mark.soak
@pytest.mark.parametrize("with_gpu", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_the_fixture_holds_a_training_to_its_budget(program, with_gpu):
    program.folder.joinpath("test_budget.py").write_text(BUDGET)
    # A test module that no import would find, under the name of another one.
    program.folder.joinpath("pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    environment = program.on_a_device("--gpu", "h200") if with_gpu else program.environment()
    choice = ["-k", "here"] if with_gpu else []
    words = ["-m", "pytest", "-p", "plimsoll.pytest_plugin", "-p", "no:xdist", "-q", "-rA", *choice, "test_budget.py"]
    ran = program.start(PYTHON, *words, environment=environment)
    outcomes = dict(line.split(" ")[:2][::-1] for line in ran.stdout.splitlines() if line.startswith(("PASSED", "FAILED", "SKIPPED")))
    name = "test_budget.py::test_%s"
    if with_gpu:
        assert outcomes == {name % "here": "PASSED", name % "here_over": "FAILED"}, ran
        assert "the budget is 1.00 GiB; PyTorch's allocator reserved" in ran.stdout
        return
    # On a machine with a GPU the other two run there.
    has_none = name % "here" not in outcomes
    outcomes = {key: value for key, value in outcomes.items() if key.startswith("test_") and "here" not in key}
    assert outcomes == {name % "fits": "PASSED", name % "is_over": "FAILED", name % "runs_out": "FAILED"}, ran
    assert not has_none or "2 skipped" in ran.stdout or "SKIPPED [2]" in ran.stdout, ran
    assert "the budget is 2.00 GiB; " in ran.stdout and "test_budget.py:9" in ran.stdout
    assert "does not fit NVIDIA GeForce RTX 4090" in ran.stdout
