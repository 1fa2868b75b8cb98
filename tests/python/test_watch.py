"""`plimsoll run --watch`, with a phantom in the place of the machine's GPU."""

import json
import os

import pytest
from described import assert_described
from harness import PYTHON, Plimsoll

TRAIN = """
import sys, time
import torch
from torch import nn

steps, what = int(sys.argv[1]), sys.argv[2]
model = nn.Sequential(*[nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(2)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
kept = []
for step in range(1, steps + 1):
    optimizer.zero_grad()
    model(torch.randn(64 + step % 5, 256, device="cuda")).square().mean().backward()
    optimizer.step()
    if what == "leak":
        kept.append(torch.zeros(1 << 18, device="cuda"))
    if what == "long batch" and step == 20:
        model(torch.randn(100_000, 256, device="cuda"))
    if what == "slow":
        time.sleep(0.05)
print("trained")
"""
LINE = next(number for number, it in enumerate(TRAIN.splitlines(), start=1) if "kept.append" in it)


@pytest.fixture
def watch(program, cache):
    """`plimsoll run --watch` on a card of 1 GiB; how it ended, and its alarms."""
    program.folder.joinpath("train.py").write_text(TRAIN)

    def watch(steps, what, *options):
        environment = program.on_a_device("--gpu", "t4", "--memory", "1GiB") | {"PLIMSOLL_RUNNING": str(program.folder / "running")}
        words = ["run", "--watch", "--alarms", "alarms.jsonl", *options, "--", PYTHON, "train.py", steps, what]
        ran = Plimsoll(program.folder, cache).run(*words, environment=environment)
        alarms = [json.loads(it) for it in program.folder.joinpath("alarms.jsonl").read_text().splitlines()]
        for it in alarms:
            assert_described("alarm", it)
        assert not list(program.folder.joinpath("running").iterdir())
        return ran, alarms

    return watch


@pytest.mark.parametrize("stacks", ["sampled", "all", "none"])
def test_a_leak_is_told_once_with_its_line_and_when_it_runs_out(watch, stacks):
    ran, (alarm,) = watch(400, "leak", "--stacks", stacks)
    assert ran.code == 0 and ran.stdout == "trained\n", ran
    assert ran.sentences == [alarm["text"]]
    assert alarm["code"] == "watch/growth" and alarm["label"] == "train.py"
    assert alarm["bytes_per_step"] == 1 << 20 and 180 < alarm["step"] < 260
    # A device of 1 GiB holds fewer than a thousand of them, beside the context.
    assert 800 < alarm["runs_out_at_step"] < 1000
    at = f" at {alarm['at']['file']}:{LINE}:" if stacks != "none" else " (the line was not seen):"
    assert f"memory grows by 1.00 MiB a step{at}" in alarm["text"].replace("1.0 MiB", "1.00 MiB"), alarm


def test_a_clean_run_says_nothing(watch):
    ran, alarms = watch(400, "clean")
    assert ran.code == 0 and not alarms and not ran.stderr, ran


def test_a_command_gets_the_alarm(watch, program):
    watch(400, "leak", "--label", "night", "--on-alarm", 'cat > got.json; echo "$PLIMSOLL_ALARM_CODE of $PLIMSOLL_ALARM_LABEL" > got.txt')
    assert program.folder.joinpath("got.txt").read_text() == "watch/growth of night\n"
    assert_described("alarm", json.loads(program.folder.joinpath("got.json").read_text()))


def test_more_than_was_planned_is_told(watch, program):
    plan = 'version = 1\npredicted_reserved_bytes = 30_000_000\n'
    program.folder.joinpath("plan.toml").write_text(plan)
    ran, alarms = watch(40, "long batch", "--plan", "plan.toml")
    assert [(it["code"], it["step"], it["expected_bytes"]) for it in alarms] == [("watch/over-plan", 21, 30_000_000)], ran


def test_others_see_how_it_goes(program, cache):
    program.folder.joinpath("train.py").write_text(TRAIN)
    running = program.folder / "running"
    environment = program.on_a_device("--gpu", "t4", "--memory", "1GiB") | {"PLIMSOLL_RUNNING": str(running)}
    words = ["run", "--watch", "--label", "night", "--", PYTHON, "train.py", 60, "slow"]
    process = Plimsoll(program.folder, cache).start(*words, environment=environment)
    seen = {}
    while process.poll() is None:
        for path in running.glob("*.json"):
            try:
                seen = json.loads(path.read_text())
            except FileNotFoundError:
                pass
    assert process.returncode == 0
    assert seen["label"] == "night" and seen["step"] > 10 and 0.04 < seen["seconds_per_step"] < 1.0
    (device,) = seen["devices"]
    assert 0 < device["allocated"] <= device["reserved"] <= device["peak_reserved"] < device["total"]
    # Two layers of 256 x 256, and twice that for AdamW.
    assert device["categories"]["parameters"] == 2 * (256 * 256 + 256) * 4 and device["growth_per_step"] == 0
    assert device["uuid"].startswith("GPU-")
    assert os.stat(running).st_mode & 0o777 == 0o700 and not list(running.iterdir())


def test_alarms_without_a_watch_are_refused(plimsoll):
    plimsoll.script("")
    ran = plimsoll.run("run", "--no-gpu", "--alarms", "alarms.jsonl", "--", PYTHON, "train.py")
    assert ran.code == 2 and "only --watch raises some" in ran.stderr, ran
