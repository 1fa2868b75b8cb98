"""What stands before a command, and behind it."""

import json

from harness import PYTHON

SCRIPT = """
import os, torch
layer = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(layer.parameters(), 0.1)
for _ in range(4):
    optimizer.zero_grad()
    layer(torch.ones(int(os.environ["BS"]) << 10, 1024, device="cuda")).sum().backward()
    optimizer.step()
"""


def test_variables_before_the_command(plimsoll):
    plimsoll.script(SCRIPT)
    small, large = (plimsoll.predict(f"BS={it}", PYTHON, "train.py", options=["--gpu", "t4"]).report for it in (1, 64))
    # Inputs and outputs: 4 KiB a row.
    assert large["peak_allocated_bytes"] - small["peak_allocated_bytes"] >= 2 * (63 << 22)
    assert plimsoll.run("run", "--no-gpu", "--", "BS=7", "sh", "-c", "exit $BS").code == 7


def test_the_largest_value_of_a_variable(plimsoll):
    plimsoll.script(SCRIPT)
    path = plimsoll.folder / "fit.json"
    options = ["--gpu", "t4", "--budget", "1GiB", "--json", path]
    ran = plimsoll.run("fit", "--find-max", "bs=1..512", *options, "--", "BS={bs}", PYTHON, "train.py", timeout=600)
    assert ran.code == 0, ran
    assert 32 < json.loads(path.read_text())["found"]["bs"] < 256, path.read_text()
    ran = plimsoll.run("fit", *options, "--", "BS=2", PYTHON, "train.py", timeout=600)
    assert ran.code == 0 and f"-- BS=2 {PYTHON} train.py" in plimsoll.folder.joinpath("plan.toml").read_text(), ran


def test_an_option_behind_the_command_is_pointed_out(plimsoll):
    plimsoll.script(SCRIPT)
    ran = plimsoll.run("predict", "BS=1", PYTHON, "train.py", "--gpu", "t4", "--until", "steady")
    line = f"plimsoll predict --gpu t4 --until steady -- BS=1 {PYTHON} train.py"
    assert ran.sentences[0] == f"--gpu is after the command, so the script receives it; for plimsoll, write it before the command: {line}"
    quiet = plimsoll.run("predict", "--quiet", "BS=1", PYTHON, "train.py", "--gpu", "t4")
    assert quiet.sentences == []
