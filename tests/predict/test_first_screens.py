"""The first screen of each command, as a terminal of 80x24 and one of 120x40 show it: docs/pictures/screens has them.

`UPDATE_EXPECT=1` redraws them; read the difference."""

import fcntl
import os
import re
import struct
import termios
from pathlib import Path

import pytest
from harness import PYTHON, ROOT, binary, clean_environment

SCREENS = ROOT / "docs" / "pictures" / "screens"
SIZES = [(80, 24), (120, 40)]

TRAINS = """
import torch
from torch import nn
net = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 10)).cuda()
opt = torch.optim.AdamW(net.parameters())
for step in range(40):
    x = torch.randn(BATCH, 1024, device="cuda")
    loss = net(x).square().mean()
    loss.backward(); opt.step(); opt.zero_grad()
"""

GROWS = TRAINS.replace("BATCH", "4096").replace("range(40)", "range(100_000)").replace("    loss.backward()", "    history.append(loss)\n    loss.backward(retain_graph=True)").replace("opt = ", "history = []\nopt = ")

DEPENDS = TRAINS.replace("BATCH", "4096").replace("    loss = net(x)", "    x = x.repeat(40, 1)\n    loss = net(x[x[:, 0] > 0])")

EVALUATES = TRAINS.replace("BATCH", "64").replace("range(40)", "range(1_000_000)").replace("    x = ", "    noise = [torch.empty(1, device=\"cuda\") for _ in range(2000)]\n    x = ") + "    if step % 900_000 == 899_999:\n        evaluate(net)\n"

SCRIPTS = {
    "predict-fits": (TRAINS.replace("BATCH", "4096"), ["--gpu", "rtx3090"]),
    "predict-which-cards": (TRAINS.replace("BATCH", "4096"), []),
    "predict-tight": (TRAINS.replace("BATCH", "4096"), ["--gpu", "rtx3090", "--memory", "650MiB"]),
    "predict-fits-so-far": (EVALUATES, ["--gpu", "rtx3090"]),
    "predict-does-not-fit": (TRAINS.replace("BATCH", "4096"), ["--gpu", "rtx3090", "--memory", "500MiB"]),
    "predict-grows": (GROWS, ["--gpu", "rtx3090"]),
    "predict-depends": (DEPENDS, ["--gpu", "rtx3090", "--memory", "2GiB"]),
}


def on_a_terminal(words, folder, size, cache):
    """What a terminal of this size shows of a command, without colours."""
    columns, rows = size
    pid, terminal = os.forkpty()
    if pid == 0:
        try:
            os.chdir(folder)
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            environment = dict(clean_environment(), PLIMSOLL_CACHE=str(cache), PLIMSOLL_PYTHON=PYTHON, TERM="dumb", NO_COLOR="1")
            # What it says meanwhile, on standard error, is erased again.
            os.dup2(os.open("errors", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            os.execve(binary(), [binary(), *map(str, words)], environment)
        finally:
            os._exit(127)
    parts = []
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            part = b""
        if not part:
            break
        parts.append(part)
    os.close(terminal)
    os.waitpid(pid, 0)
    text = b"".join(parts).decode().replace("\r\n", "\n")
    text = re.sub(r"started your script \d+ times", "started your script N times", text)
    return re.sub(r"\d+(\.\d+)? s\b", "N s", text).replace(str(folder), "~")


def compare(name, size, text):
    path = SCREENS / f"{name}-{size[0]}x{size[1]}.txt"
    if os.environ.get("UPDATE_EXPECT"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.exists() and text == path.read_text(), text
    # The blank line before a report may scroll away; the prompt is the last line.
    rows = sum(max(1, -(-len(it) // size[0])) for it in text.strip("\n").split("\n"))
    assert rows < size[1], (rows, text)


@pytest.mark.matrix(3)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_a_prediction_is_one_screen(plimsoll, cache, name, size):
    script, options = SCRIPTS[name]
    if not options and Path("/proc/driver/nvidia/gpus").is_dir():
        pytest.skip("without --gpu this machine's own card is meant")
    plimsoll.script(script)
    compare(name, size, on_a_terminal(["predict", *options, "--", "train.py"], plimsoll.folder, size, cache))


RECORDED = {
    "explain-out-of-memory": ["explain", ROOT / "fixtures" / "snapshots" / "oom-gpt2-b32-cap12.pickle"],
    "explain-no-error": ["explain", ROOT / "fixtures" / "snapshots" / "lstm-adam-b32-s128.pickle"],
    "replay": ["replay", ROOT / "fixtures" / "snapshots" / "oom-gpt2-b32-cap12.pickle", "--capacity", "24GiB"],
    "diff": ["diff", ROOT / "fixtures" / "snapshots" / "lstm-adam-b32-s128.pickle", ROOT / "fixtures" / "snapshots" / "oom-gpt2-b32-cap12.pickle"],
    "lint": ["lint", "train.py"],
    "lint-many": ["lint", "many"],
}

LINTED = """import torch
def train(model, loader, opt):
    total = 0
    for x, y in loader:
        loss = model(x.cuda(), y.cuda())
        loss.backward(); opt.step(); opt.zero_grad()
        total += loss
    return total
"""


TRAINS_A_BATCH = """
import torch
from torch import nn
net = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)) for _ in range(4)]).cuda()
opt = torch.optim.AdamW(net.parameters())
for step in range(9):
    x = torch.randn(16384, 1024, device="cuda")
    loss = net(x).square().mean()
    loss.backward(); opt.step(); opt.zero_grad()
"""


@pytest.mark.matrix(1)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name, memory", [("fit-with-a-plan", "2GiB"), pytest.param("fit-does-not-fit", "500MiB", marks=pytest.mark.soak)])
def test_a_search_is_one_screen(plimsoll, cache, name, memory, size):
    plimsoll.script(TRAINS_A_BATCH)
    compare(name, size, on_a_terminal(["fit", "--force", "--gpu", "rtx3090", "--memory", memory, "--", "train.py"], plimsoll.folder, size, cache))


STAGES = """import sys, torch
net = torch.nn.Conv2d(3, 8, 3).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
for size in (64, 128, 256):
    for step in range(40_000):
        net(torch.zeros(int(sys.argv[1]), 3, size, size, device="cuda")).sum().backward(); opt.step(); opt.zero_grad()
"""
LARGEST = {
    "fit-find-max": ("import sys\n" + TRAINS.replace("BATCH", "int(sys.argv[1])"), "batch=4096..65536:4096"),
    "fit-find-max-so-far": (STAGES, "batch=1..6:2"),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", sorted(LARGEST))
def test_the_largest_batch_is_one_screen(plimsoll, cache, name, size):
    script, values = LARGEST[name]
    plimsoll.script(script)
    words = ["fit", "--find-max", values, "--gpu", "rtx3090", "--memory", "2GiB", "--", "train.py", "{batch}"]
    compare(name, size, on_a_terminal(words, plimsoll.folder, size, cache))


@pytest.mark.parametrize("size", SIZES)
def test_a_check_is_one_screen(plimsoll, cache, size):
    plimsoll.script(TRAINS.replace("BATCH", "4096"))
    words = ["check", "--add", "train", "--gpu", "rtx3090", "--steps", "3", "--", "train.py"]
    on_a_terminal(words, plimsoll.folder, size, cache)
    plimsoll.script(TRAINS.replace("BATCH", "8192"))
    compare("check-changed", size, on_a_terminal(["check"], plimsoll.folder, size, cache))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", sorted(RECORDED))
def test_what_reads_files_is_one_screen(plimsoll, cache, name, size):
    plimsoll.script(LINTED)
    (plimsoll.folder / "many").mkdir()
    for i in range(50):
        (plimsoll.folder / "many" / f"train_{i:02}.py").write_text(LINTED)
    compare(name, size, on_a_terminal(RECORDED[name], plimsoll.folder, size, cache))


@pytest.mark.parametrize("name", ["predict-does-not-fit", "fit-with-a-plan", "fit-does-not-fit"])
def test_the_verdict_and_what_to_type_are_in_six_lines(name):
    for columns, rows in SIZES:
        first = (SCREENS / f"{name}-{columns}x{rows}.txt").read_text().strip("\n").split("\n")[:6]
        assert re.match("FITS|DOES NOT FIT", first[0]) and any(it.startswith("    plimsoll ") for it in first), first
