"""`plimsoll check`: goldens are written, compared, and said to be of another torch; and the action's steps."""

import importlib.util
import json
import os
import subprocess
import textwrap
import xml.etree.ElementTree as ElementTree

import pytest
from harness import PYTHON, ROOT, binary

SCRIPT = textwrap.dedent("""\
    import torch

    def main():
        model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1)).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        for step in range(6):
            optimizer.zero_grad()
            x = torch.randn(2048, 512, device="cuda")
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()

    main()
    """)


@pytest.fixture
def project(plimsoll):
    plimsoll.script(SCRIPT)
    ran = plimsoll.run("check", "--add", "train", "--gpu", "t4", "--steps", "3", "--", PYTHON, "train.py")
    assert ran.code == 0, ran
    return plimsoll


def test_a_change_of_memory_fails_and_names_the_line(project):
    moved = SCRIPT.replace("import torch\n", "import torch\n\n# A comment.\n", 1).replace("        loss =", "        again = x.shape\n        loss =")
    project.script(moved)
    ran = project.run("check")
    assert ran.code == 0 and ran.stdout.startswith("AS IT WAS train: "), ran
    project.script(SCRIPT.replace("2048", "4096"))
    ran = project.run("check", "-o", "a.json", "-o", "a.xml", "-o", "a.md", "-o", "a.sarif")
    assert ran.code == 1 and ran.stdout.startswith("CHANGED train: "), ran
    assert "train.py:8 in main (inputs)" in ran.stdout and "if the change is intended: plimsoll check --update" in ran.stdout, ran
    answer = json.loads((project.folder / "a.json").read_text())
    if importlib.util.find_spec("jsonschema"):
        from described import assert_described

        assert_described("check", answer)
    [it] = answer["scripts"]
    assert it["verdict"] == "changed" and {"allocated", "reserved"} <= {it["what"] for it in it["totals"]}
    assert {(it["line"], it["text"]) for it in it["lines"]} >= {(8, 'x = torch.randn(4096, 512, device="cuda")')}
    suite = ElementTree.parse(project.folder / "a.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "1", "0")
    assert "| train | t4 |" in (project.folder / "a.md").read_text()
    [result] = json.loads((project.folder / "a.sarif").read_text())["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "train.py"
    ran = project.run("check", "--update")
    assert ran.code == 0, ran
    ran = project.run("check", "--format", "markdown")
    assert ran.code == 0 and "unchanged" in ran.stdout, ran


def test_what_cannot_be_compared_is_said(project):
    goldens = project.folder / "plimsoll-check.toml"
    text = goldens.read_text()
    torch = next(it for it in text.splitlines() if it.startswith("torch = "))
    goldens.write_text(text.replace(torch, 'torch = "1.0"'))
    ran = project.run("check")
    assert ran.code == 2 and "measured with torch 1.0, and this is" in ran.stdout, ran
    goldens.write_text(text)
    project.script("raise SystemExit('no data')\n")
    ran = project.run("check", "--update")
    assert ran.code == 2 and ran.stdout.startswith("COULD NOT TELL train: "), ran
    # What it had, it keeps.
    assert goldens.read_text() == text
    project.run("check", "none").assert_sentence("no script none; it has train")
    goldens.unlink()
    project.run("check").assert_sentence("there is no plimsoll-check.toml here")


def steps_of_the_action():
    """Names and scripts of its steps, read without a library for YAML: `run: |` is text, indented by eight."""
    name, steps, inside = None, {}, False
    for line in (ROOT / "action.yml").read_text().splitlines():
        if line.startswith("    - name: "):
            name, inside = line.removeprefix("    - name: "), False
        elif line == "      run: |":
            steps[name], inside = [], True
        elif inside and (line.startswith("        ") or not line.strip()):
            steps[name].append(line[8:])
        else:
            inside = False
    return {name: "\n".join(lines) for name, lines in steps.items()}


def test_the_steps_of_the_action(project):
    """As GitHub runs them: bash, `-eo pipefail`, inputs in the environment; what pip would be given is written down."""
    steps = steps_of_the_action()
    assert set(steps) == {"install", "check"}
    bin_ = project.folder / "bin"
    bin_.mkdir()
    (bin_ / "plimsoll").symlink_to(binary())
    (bin_ / "python").write_text(f'#!/bin/sh\nif [ "$1 $2" = "-m pip" ]; then echo "$@" >> {project.folder}/pip.txt; else exec {PYTHON} "$@"; fi\n')
    (bin_ / "python").chmod(0o755)
    files = {name: project.folder / name.lower() for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}

    def step(name, **inputs):
        environment = project.environment(PATH=f"{bin_}{os.pathsep}{os.environ['PATH']}", RUNNER_TEMP=str(project.folder / "temp"))
        environment |= {name: str(it) for name, it in files.items()} | inputs
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps[name]]
        return subprocess.run(words, cwd=project.folder, env=environment, capture_output=True, text=True)

    assert step("install", REQUIREMENTS="req.txt", PLIMSOLL="plimsoll-gpu").returncode == 0
    assert (project.folder / "pip.txt").read_text() == "-m pip install --requirement req.txt\n-m pip install plimsoll-gpu\n"
    ran = step("check", GOLDENS="plimsoll-check.toml", TOLERANCE="")
    assert ran.returncode == 0, ran
    assert "1 unchanged" in files["GITHUB_STEP_SUMMARY"].read_text()
    assert files["GITHUB_OUTPUT"].read_text().startswith("report=")
    project.script(SCRIPT.replace("2048", "4096"))
    ran = step("check", GOLDENS="plimsoll-check.toml", TOLERANCE="1%")
    assert ran.returncode == 1, ran
    assert "**changed**" in files["GITHUB_STEP_SUMMARY"].read_text()


def test_the_hooks_name_commands_that_there_are(plimsoll):
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    entries = [line.split(": ", 1)[1].split() for line in text.splitlines() if line.strip().startswith("entry: ")]
    assert entries == [["plimsoll", "lint"], ["plimsoll", "check"]]
    # pre-commit appends the names of files; a clean one passes.
    plimsoll.script("import torch\n", "a.py")
    plimsoll.script("print(1)\n", "b c.py")
    assert plimsoll.run(*entries[0][1:], "a.py", "b c.py").code == 0
    for entry in entries:
        assert plimsoll.run(*entry[1:], "--help").code == 0
