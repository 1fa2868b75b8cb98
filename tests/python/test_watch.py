"""`plimsoll run --watch`, with a phantom in the place of the machine's GPU."""

import json
import os

import pytest
from described import assert_described
from harness import PYTHON, Plimsoll

TRAIN = """
import ctypes, sys, time
import torch
from torch import nn

steps, what = int(sys.argv[1]), sys.argv[2]
model = nn.Sequential(*[nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(2)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
kept = []
cudart = ctypes.CDLL(None)
for step in range(1, steps + 1):
    optimizer.zero_grad()
    model(torch.randn(64 + step % 5, 256, device="cuda")).square().mean().backward()
    optimizer.step()
    if what == "leak":
        kept.append(torch.zeros(1 << 18, device="cuda"))
    if what == "long batch" and step == 20:
        model(torch.randn(100_000, 256, device="cuda"))
    if what == "longer and longer":
        model(torch.randn(1_000 * step, 256, device="cuda"))
    if what == "neighbour" and step == 30:
        # As another process would: past PyTorch.
        cudart.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(700 << 20))
    if what == "in pieces" and step == 30:
        pieces = [torch.zeros(6 << 18, device="cuda") for _ in range(120)]
        del pieces[::2]
        try:
            torch.zeros(300 << 18, device="cuda")
        except torch.OutOfMemoryError:
            pass
    if what == "a bank that the loss looks at":
        # What is joined needs several times as much in each step as stays of it.
        z = model(torch.randn(256, 256, device="cuda"))
        bank = torch.cat([bank, z.detach()]) if step > 1 else z.detach()
        (z @ torch.cat([z, bank, bank]).t()).logsumexp(1).mean().backward()
        optimizer.zero_grad()
        del z
    if what == "batches from short to long":
        out = model(torch.randn(250 * step, 256, device="cuda"))
        out.logsumexp(1).exp().square().mean().backward()
        optimizer.zero_grad()
    if what in ("slow", "neighbour", "in pieces"):
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
    at = f" at {alarm['at']['file']}:{LINE}:" if stacks != "none" else " (line unknown):"
    assert f"memory grows by 1.00 MiB a step{at}" in alarm["text"].replace("1.0 MiB", "1.00 MiB"), alarm


def test_a_tensor_that_is_joined_with_more_and_more_is_told_before_memory_runs_out(watch):
    """The loss looks at all of it, so that what a step takes rises faster than what stays after it: as with batches that grow."""
    ran, alarms = watch(400, "a bank that the loss looks at")
    assert [it["code"] for it in alarms] == ["watch/drift"], ran
    assert alarms[0]["step"] < 300 and "the peak of each step rises" in ran.sentences[0], ran


def test_batches_that_grow_are_no_leak(watch):
    ran, alarms = watch(300, "batches from short to long")
    assert "watch/growth" not in [it["code"] for it in alarms], ran


def test_a_loop_without_an_optimizer_is_watched_by_its_passes(watch, program):
    text = """
import sys, torch
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(3)]).cuda()
kept = []
for _ in range(int(sys.argv[1])):
    with torch.no_grad():
        model(torch.randn(64, 256, device="cuda"))
    kept.append(torch.zeros(1 << 18, device="cuda"))
"""
    program.folder.joinpath("train.py").write_text(text)
    _, (alarm,) = watch(400, "leak")
    assert alarm["code"] == "watch/growth" and alarm["at"]["line"] == 8 and alarm["bytes_per_step"] == 1 << 20, alarm


def test_a_file_can_ask_for_it(watch, program):
    program.folder.joinpath("plimsoll.toml").write_text("[run]\nwatch = true\n")
    environment = program.on_a_device("--gpu", "t4", "--memory", "1GiB") | {"PLIMSOLL_RUNNING": str(program.folder / "running")}
    ran = Plimsoll(program.folder, program._cache).run("run", "--label", "night", "--", PYTHON, "train.py", 400, "leak", environment=environment)
    assert ran.sentences[0] == "with --watch true (plimsoll.toml:2)" and "memory grows by" in ran.sentences[1], ran


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


def test_a_plan_of_another_first_step_is_told(watch, program):
    plan = 'version = 1\npredicted_reserved_bytes = 300_000_000\n[first_step]\nreserved_bytes = 300_000_000\n'
    program.folder.joinpath("plan.toml").write_text(plan)
    ran, alarms = watch(40, "clean", "--plan", "plan.toml")
    assert [(it["code"], it["step"], it["expected_bytes"]) for it in alarms] == [("watch/drift", 1, 300_000_000)], ran
    assert ran.sentences[0] == alarms[0]["text"], ran


def test_a_prediction_is_what_is_expected(watch, program):
    program.folder.joinpath("report.json").write_text('{"peak_reserved_bytes": 30000000}')
    _, alarms = watch(40, "long batch", "--expect", "report.json")
    assert [it["code"] for it in alarms] == ["watch/over-plan"]


def test_steps_that_need_more_and_more_are_told_before_it_is_all(watch):
    ran, (alarm,) = watch(400, "longer and longer")
    assert ran.code == 1 and alarm["code"] == "watch/drift", ran
    ended = next(it for it in ran.sentences if it.startswith("ran out of GPU memory in step "))
    # It runs out when it was said to, more or less.
    step = int(ended.split(" step ")[1].split(",")[0])
    assert alarm["step"] < step and abs(alarm["runs_out_at_step"] - step) < 0.2 * step, (alarm, ended)


def test_what_others_take_is_told(watch):
    _, (alarm,) = watch(80, "neighbour")
    assert alarm["code"] == "watch/neighbour" and alarm["taken_bytes"] == 700 << 20 and alarm["step"] > 29, alarm
    # Nobody else is on the device: that memory is the run's own, past PyTorch.
    assert alarm["neighbour"] is None


def test_memory_in_pieces_is_told(watch):
    _, (alarm,) = watch(80, "in pieces")
    assert alarm["code"] == "watch/fragmentation" and alarm["retries"] >= 1 and alarm["useless_bytes"] > 300 << 20, alarm


@pytest.mark.parametrize("words, label", [(["--watch", "--label", "night"], "night"), ([], "train.py")])
def test_others_see_how_it_goes(program, cache, words, label):
    program.folder.joinpath("train.py").write_text(TRAIN)
    running = program.folder / "running"
    environment = program.on_a_device("--gpu", "t4", "--memory", "1GiB") | {"PLIMSOLL_RUNNING": str(running)}
    words = [*words, "--", PYTHON, "train.py", 60, "slow"]
    process = Plimsoll(program.folder, cache).start("run", *words, environment=environment)
    seen, asked = {}, None
    while process.poll() is None:
        if words[0] != "--watch" and seen and asked is None:
            asked = Plimsoll(program.folder, cache).run("watch", "train.py", environment=environment)
        for path in running.glob("*.json"):
            try:
                seen = json.loads(path.read_text())
            except FileNotFoundError:
                pass
    assert process.returncode == 0
    assert asked is None or asked.code == 2 and "runs without alarms: start it with `plimsoll run --watch`" in asked.stderr, asked
    assert seen["raises_alarms"] == (asked is None)
    assert seen["label"] == label and seen["step"] > 10 and 0.04 < seen["seconds_per_step"] < 1.0
    (device,) = seen["devices"]
    assert 0 < device["allocated"] <= device["reserved"] <= device["peak_reserved"] < device["total"]
    # Two layers of 256 x 256, and twice that for AdamW.
    assert device["categories"]["parameters"] == 2 * (256 * 256 + 256) * 4 and device["growth_per_step"] == 0
    assert device["uuid"].startswith("GPU-")
    # What is reserved and free is in one piece or more.
    if asked is None:
        assert 0 < device["largest_free"] <= device["reserved"] - device["allocated"]
    else:
        assert device["largest_free"] is None, "to look would be an event of the recording"
    assert os.stat(running).st_mode & 0o777 == 0o700 and not list(running.iterdir())


def test_alarms_without_a_watch_are_refused(plimsoll):
    plimsoll.script("")
    ran = plimsoll.run("run", "--no-gpu", "--alarms", "alarms.jsonl", "--", PYTHON, "train.py")
    assert ran.code == 2 and "need --watch" in ran.stderr, ran
