"""What docs/run.md and docs/python.md show is run."""

import os
import re
import shlex

import pytest
from harness import PYTHON, ROOT, binary

TINY = """
import torch
layer = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.AdamW(layer.parameters())
for _ in range(5):
    optimizer.zero_grad()
    layer(torch.randn(4, 8, device="cuda")).sum().backward()
    optimizer.step()
"""


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("line", blocks("run.md", "text")[0].splitlines())
def test_command_of_the_page_on_run(program, line):
    (program.folder / "train.py").write_text(TINY)
    (program.folder / "plan.toml").write_text('version = 1\n[[remedy]]\nid = "fused"\n')
    launcher = [PYTHON, "-m", "torch.distributed.run", "--standalone"]
    words = []
    for word in shlex.split(line):
        words += {"plimsoll": [binary()], "torchrun": launcher, "python": [PYTHON]}.get(word, [word])
    ran = program.start(*words, environment=program.on_a_device("--gpu", "t4"))
    assert ran.returncode == 0, ran
    if "--record" in line:
        left = ["run-rank0.zip", "run-rank1.zip"] if "torchrun" in line else ["run.zip"]
        assert sorted(it.name for it in program.folder.glob("*.zip")) == left


@pytest.mark.soak
def test_the_programs_of_the_page_on_python(program):
    environment = program.on_a_device("--gpu", "rtx4090")
    shown = [text for text in blocks("python.md", "text") if text.startswith("fits ")]
    for block in blocks("python.md", "python"):
        name = re.match(r"# (\w+\.py)\n", block)[1]
        (program.folder / name).write_text(block)
        if name == "train.py":
            continue
        words = ["-m", "pytest", "-p", "plimsoll.pytest_plugin", "-p", "no:xdist", name] if name.startswith("test_") else [name]
        # A prediction wants no device, and would not see this one.
        ran = program.start(PYTHON, *words, environment=environment)
        assert ran.returncode == 0, (name, ran)
        if name == "ask.py":
            assert ran.stdout.splitlines()[0] == shown[0].strip(), ran
        if name == "fit.py":
            assert ran.stdout.splitlines()[-1] == "4096", ran
    assert os.path.getsize(program.folder / "run.zip") > 0
