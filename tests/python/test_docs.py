"""What docs/run.md, docs/python.md and docs/howto/small-card.md show is run."""

import importlib.util
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


SMALL_CARD = "howto/small-card.md"
ADAPTED = """
import argparse, torch
p = argparse.ArgumentParser()
p.add_argument("model")
p.add_argument("--length", type=int, default=512)
p.add_argument("--rank", type=int, default=16)
args = p.parse_args()
layer = torch.nn.Linear(args.rank, 64).cuda()
optimizer = torch.optim.AdamW(layer.parameters())
for _ in range(5):
    layer(torch.randn(args.length, args.rank, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def commands(page):
    """Those of its blocks of text, and of its tables."""
    text = (ROOT / "docs" / page).read_text()
    return [line for block in blocks(page, "text") for line in block.splitlines()] + re.findall(r"\| `(plimsoll [^`]+)` \|", text)


@pytest.mark.parametrize("line", [it for it in commands(SMALL_CARD) if it.startswith("plimsoll ")])
def test_command_of_the_page_on_small_cards(program, line):
    (program.folder / "qlora.py").write_text(ADAPTED)
    words = [{"plimsoll": binary(), "python": PYTHON}.get(it, it) for it in shlex.split(line)]
    ran = program.start(*words)
    assert ran.returncode == 0, ran


@pytest.mark.soak
@pytest.mark.skipif(not all(map(importlib.util.find_spec, ("bitsandbytes", "peft", "transformers"))), reason="needs bitsandbytes and PEFT")
def test_the_program_of_the_page_on_small_cards(program):
    (program.folder / "qlora.py").write_text(blocks(SMALL_CARD, "python")[0])
    (program.folder / "model.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "LlamaForCausalLM(LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, vocab_size=512)).save_pretrained('MODEL')\n"
    )
    assert program.start(PYTHON, "model.py").returncode == 0
    ran = program.start(binary(), "predict", "--gpu", "rtx3060-12g", "--", PYTHON, "qlora.py", "MODEL", "--steps", "4")
    assert ran.returncode == 0 and "FITS rtx3060-12g" in ran.stdout, ran
