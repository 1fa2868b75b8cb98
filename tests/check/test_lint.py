"""`plimsoll lint`: what it finds, in which forms it says so, and what a mistake costs on the phantom."""

import json
import subprocess
import textwrap

import pytest
from harness import PYTHON

LEAK = textwrap.dedent("""\
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = []
    for step in range(40):
        optimizer.zero_grad()
        out = model(torch.randn(4096, 256, device="cuda"))
        loss = out.square().mean()
        loss.backward()
        optimizer.step()
        kept.append(out)
        if step < 0:
            torch.cuda.empty_cache()
    """)


def described(name, document):
    pytest.importorskip("jsonschema")
    from described import assert_described

    assert_described(name, document)


def test_it_says_what_is_wrong_and_where(plimsoll):
    plimsoll.script(LEAK)
    ran = plimsoll.run("lint", "train.py")
    assert ran.code == 1, ran
    assert ran.stdout.startswith("train.py:12:17 PLM102 `kept` keeps the autograd graph"), ran
    assert "1 mistake in 1 file" in ran.stdout, ran
    plimsoll.script(LEAK.replace("append(out)", "append(out)  # plimsoll: ignore[kept-results]"))
    ran = plimsoll.run("lint", "train.py")
    assert (ran.code, ran.stdout) == (0, "nothing found in 1 file\n"), ran


EDITS = """\
import torch

class Meter:
    def __init__(self):
        self.total = [0.0, 0.0]

    def update(self, values):
        for i, value in enumerate(values):
            self.total[i] += value

net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
meter = Meter()
total = 0.0
losses, outputs, history = [], [], []
for step in range(3):
    opt.zero_grad()
    out = net(torch.randn(8, 4))
    a, b = out.abs().mean(), out.square().mean()
    loss = a + b
    loss.backward()
    opt.step()
    total += loss
    total += a * 2 + b
    losses.append(loss)
    outputs.append(out if step else out * 2)
    history.append({"loss": loss, "step": step})
    meter.update([a, b])
"""


def test_what_it_proposes_runs(plimsoll, tmp_path):
    plimsoll.script(EDITS)
    found = json.loads(plimsoll.run("lint", "train.py", "--format", "json").stdout)["diagnoses"]
    lines = EDITS.splitlines()
    n_edits = 0
    for it in sorted(found, key=lambda it: (it["line"], it["column"]), reverse=True):
        proposed = it["message"].split("`")[-2]
        assert it["line"] == it["end_line"], it
        if proposed.startswith("."):
            continue
        line = lines[it["line"] - 1]
        lines[it["line"] - 1] = line[: it["column"] - 1] + proposed + line[it["end_column"] - 1 :]
        n_edits += 1
    assert n_edits >= 4, found
    edited = tmp_path / "edited.py"
    edited.write_text("\n".join(lines) + "\n")
    ran = subprocess.run([PYTHON, str(edited)], capture_output=True, text=True)
    assert ran.returncode == 0, (ran.stderr, edited.read_text())


def test_the_forms_for_programs(plimsoll):
    plimsoll.script(LEAK)
    found = json.loads(plimsoll.run("lint", ".", "--format", "json").stdout)
    assert (found["files"], found["lines"]) == (1, LEAK.count("\n"))
    described("lint", found)
    [it] = found["diagnoses"]
    assert (it["file"], it["line"], it["code"], it["name"]) == ("./train.py", 12, "PLM102", "kept-results")
    sarif = json.loads(plimsoll.run("lint", ".", "--format", "sarif").stdout)
    [result] = sarif["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (sarif["version"], result["ruleId"], place["artifactLocation"]["uri"]) == ("2.1.0", "PLM102", "train.py")
    assert place["region"]["startLine"] == 12
    assert any(it["id"] == "PLM102" and "## Why" in it["help"]["markdown"] for it in sarif["runs"][0]["tool"]["driver"]["rules"])
    github = plimsoll.run("lint", "train.py", "--format", "github").stdout
    assert github.startswith("::warning title=plimsoll (PLM102),file=train.py,line=12,col=17,"), github


def test_a_notebook_a_folder_standard_input_and_what_is_no_python(plimsoll):
    cells = [{"cell_type": "markdown", "source": "words"}, {"cell_type": "code", "source": ["%matplotlib inline\n", "import torch"]}]
    cells += [{"cell_type": "code", "source": "\n".join(LEAK.splitlines())}]
    plimsoll.script(json.dumps({"cells": cells}), "a.ipynb")
    ran = plimsoll.run("lint", "a.ipynb")
    assert ran.stdout.startswith("a.ipynb:cell 3:12:17 PLM102"), ran
    plimsoll.script("def f(:\n", "b.py")
    ran = plimsoll.run("lint", ".")
    assert ran.code == 2, ran
    assert "b.py:1:7: this is not Python" in ran.stdout and "PLM102" in ran.stdout, ran
    with plimsoll.start("lint", "-", stdin=-1) as process:
        stdout, _ = process.communicate(LEAK)
    assert (process.returncode, stdout.startswith("-:12:17 PLM102")) == (1, True)


def test_what_is_asked_wrongly_is_said(plimsoll):
    plimsoll.run("lint").assert_sentence("no file was named")
    plimsoll.run("lint", "none.py").assert_sentence("there is no file none.py")
    plimsoll.script(LEAK)
    plimsoll.run("lint", "train.py", "--select", "PLX").assert_sentence('no rule "PLX"')
    plimsoll.run("lint", "--explain", "PLM999").assert_sentence('no rule "PLM999"')
    assert "## When to leave it as it is" in plimsoll.run("lint", "--explain", "kept-loss").stdout
    assert plimsoll.run("lint", "--list").stdout.count("PLM") == 38


def test_confirm_says_what_each_costs(plimsoll):
    leaky = LEAK.replace("torch.cuda.empty_cache()", "torch.autograd.set_detect_anomaly(True)")
    script = plimsoll.script(leaky)
    ran = plimsoll.run("lint", "--select", "PLM102,PLM504", "--format", "json", "--confirm", "--gpu", "t4", "--", PYTHON, "train.py")
    assert ran.code == 1, ran
    found = json.loads(ran.stdout)
    described("lint", found)
    costs = {it["code"]: it["cost"] for it in found["diagnoses"]}
    # One output of 4096 numbers in each step: the backward pass has freed the rest of its graph.
    assert costs["PLM102"]["growth_bytes_per_step"] == 4096 * 4, costs
    assert costs["PLM102"]["peak_allocated_bytes"] == 39 * 4096 * 4, costs
    assert costs["PLM504"]["text"].startswith("not reached"), costs
    assert script.read_text() == leaky
