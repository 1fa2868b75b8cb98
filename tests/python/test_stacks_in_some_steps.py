"""`plimsoll run` where stacks would cost too much: they are taken in a few steps, and the others borrow from these.

A clock of the script's own says what steps take, so that nothing depends on how busy the machine is: 1.0, and `slower` more
for a step that is seen in full, which is one whose modules are watched.
"""

import json
import zipfile

import pytest
from harness import PYTHON, Plimsoll

TRAIN = """
import sys, time
import torch
from torch import nn

slower, what = float(sys.argv[1]), sys.argv[2]
passed = 0.0
time.perf_counter = lambda: passed
model = nn.Sequential(*[nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(4)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
kept, scores = [], []
for step in range(1, 73):
    rows = 1 << 20 if what == "long batch" and step == 70 else 64 + step % 3
    x = torch.randn(rows, 256, device="cuda")
    passed += 1.0 + slower * hasattr(nn.Module.__call__, "__wrapped__")
    optimizer.zero_grad()
    if what == "checked now and then" and step % 7 == 0:
        print("norm", x.square().sum().item())
    loss = model(x).square().mean()
    loss.backward()
    if what == "leak":
        kept.append(torch.zeros(1 << 20, device="cuda"))
    if what == "evaluated" and step == 69:
        model.eval()
        for _ in range(2):
            scores.append(model(torch.randn(1 << 12, 256, device="cuda")))
        model.train()
    optimizer.step()
"""


def line(text):
    """The number of the first line of the script that has `text`."""
    return next(number for number, it in enumerate(TRAIN.splitlines(), start=1) if text in it)


@pytest.fixture
def train(program, cache):
    """Trains under the recorder; what the agent wrote and what `explain` says of it."""
    plimsoll = Plimsoll(program.folder, cache)
    program.folder.joinpath("train.py").write_text(TRAIN)

    def train(what, slower, *options):
        environment = program.on_a_device("--gpu", "t4", "--memory", "4GiB")
        plimsoll.run("run", "--record", "run.zip", *options, "--", PYTHON, "train.py", slower, what, environment=environment)
        said = plimsoll.run("explain", "run.zip", "--json", "found.json")
        assert said.code in (0, 1), said
        with zipfile.ZipFile(program.folder / "run.zip") as archive:
            (name,) = [it for it in archive.namelist() if it.endswith("agent.jsonl")]
            notes = [json.loads(it) for it in archive.read(name).decode().splitlines()]
        program.folder.joinpath("run.zip").unlink()
        return notes, json.loads(program.folder.joinpath("found.json").read_text())

    return train


def in_full(notes):
    """The steps that ended while stacks were taken."""
    kept, steps = True, []
    for it in notes:
        if it["kind"] == "stacks":
            kept = it["kept"]
        elif it.get("what") == "step_end" and kept:
            steps.append(it["step"])
    return steps


@pytest.mark.matrix(1)
@pytest.mark.parametrize("what", ["leak", "long batch", "checked now and then"])
def test_a_few_steps_in_full_say_what_all_would_have_said(train, what):
    notes, sampled = train(what, 0.4)
    _, everything = train(what, 0.4, "--stacks", "all")
    # Four to begin with, every fourth until the cost is known, then one in 128: in 80 it would be 0.5 % of the time.
    assert in_full(notes) == [1, 2, 3, 4, 8, 12, 16, 20, 24]
    assert [it for it in sampled["notes"] if "--stacks all" in it]
    # Which module asked for the memory is seen where modules are watched.
    for it in [sampled["oom"], everything["oom"], *sampled["ooms"], *everything["ooms"]]:
        (it or {}).pop("module", None)
    assert {key for key in everything if everything[key] != sampled[key]} == {"notes"}
    assert bool(sampled["oom"]) == (what == "long batch")


def test_a_leak_is_named_with_its_line(train):
    _, found = train("leak", 0.4)
    (leak,) = [it for it in found["findings"] if it["code"] == "growth/per-step"]
    assert leak["evidence"]["line"]["line"] == line("kept.append") and leak["bytes"] > 60 << 22, leak


def test_steps_that_cost_nothing_more_are_all_recorded_in_full(train):
    notes, _ = train("leak", 0.004)
    assert in_full(notes)[-49:] == list(range(24, 73))
    assert not [it for it in notes if it.get("code") == "sampled-stacks"]


def test_a_model_that_turns_to_evaluation_in_a_light_step_is_seen(train):
    notes, _ = train("evaluated", 0.4)
    # With gradients: whether backward follows says that it is no training.
    evaluations = [it["step"] for it in notes if it.get("mode") == "evaluation" and it["what"] == "phase_begin"]
    assert evaluations == [68, 68]
    assert 69 not in in_full(notes)[:-1] and 72 not in in_full(notes)


def test_none_takes_none(train):
    notes, found = train("leak", 0.4, "--stacks", "none")
    assert in_full(notes) == []
    assert found["steps"] == 72 and found["peak_allocated_bytes"] > 72 << 22
