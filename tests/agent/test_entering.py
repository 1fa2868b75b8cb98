"""The agent enters a process, or stays out of it."""

import os
import subprocess

import pytest
from harness import PYTHON
from plimsoll_agent import support


def fake_torch(launcher, version, cuda):
    """A torch that must not be executed."""
    launcher.file("fake/torch/__init__.py", "raise RuntimeError('torch was executed')\n")
    launcher.file(
        "fake/torch/version.py",
        "from typing import Optional\n__version__ = %r\ndebug = False\ncuda: Optional[str] = %r\n" % (version, cuda),
    )
    return {"PYTHONPATH": os.path.join(str(launcher.folder), "fake")}


def without_torch(launcher):
    """A Python that has nothing but its standard library."""
    folder = os.path.join(str(launcher.folder), "empty")
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", folder], check=True)
    return os.path.join(folder, "bin", "python")


def test_a_program_without_torch_is_left_alone(bare):
    run = bare("import sys, json; print('plimsoll_agent.agent' in sys.modules)")
    assert (run.returncode, run.stdout, run.stderr, run.processes) == (0, "False\n", "", [])


def test_looking_for_torch_is_not_importing_it(bare):
    env = fake_torch(bare, "2.6.0", None)
    run = bare("import importlib.util as u; print(u.find_spec('torch').name)", env=env)
    assert (run.returncode, run.stdout, run.processes) == (0, "torch\n", [])


def test_the_users_sitecustomize_runs_and_is_the_one_seen(bare):
    theirs = bare.file("theirs/sitecustomize.py", "print('theirs'); mark = 1\n")
    env = {"PYTHONPATH": os.path.dirname(theirs)}
    run = bare("import sitecustomize; print(sitecustomize.mark, sitecustomize.__file__)", env=env)
    assert run.stdout == "theirs\n1 %s\n" % theirs
    assert run.stderr == ""


def test_a_broken_sitecustomize_is_reported_as_python_does(bare):
    theirs = bare.file("theirs/sitecustomize.py", "raise ValueError('broken')\n")
    run = bare("print('ran')", env={"PYTHONPATH": os.path.dirname(theirs)})
    without = bare("print('ran')", env={"PYTHONPATH": os.path.dirname(theirs)}, agent=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, without.stdout, without.stderr)
    assert "ValueError: broken" in run.stderr


def test_without_a_session_nothing_happens(bare):
    run = bare("import sys; print([m for m in sys.modules if 'plimsoll' in m])", agent=False, env={"PYTHONPATH": bare.unpacked.agent})
    assert run.stdout == "[]\n"


@pytest.mark.parametrize(
    "version, cuda, reason, says",
    [
        ("2.11.0+cpu", None, "no-cuda-build", "built without CUDA"),
        ("2.6.0+cu124", "12.4", "version", "2.6.0+cu124 (CUDA 12.4)"),
        ("2.11.0+cu128", "12.8", "version", "(CUDA 12.8)"),
        ("2.8.0+cu130", "13.0", "version", "2.8 built for CUDA 12"),
        ("2.80.0+cu128", "12.8", "version", "2.80.0"),
    ],
)
def test_an_unsupported_torch_is_refused_before_it_runs(bare, version, cuda, reason, says):
    run = bare("import torch\nprint('not reached')", env=fake_torch(bare, version, cuda))
    assert (run.returncode, run.stdout, run.stderr) == (86, "", "")
    line = run.process.one("unsupported")
    assert (line["reason"], line["torch"], line["cuda"]) == (reason, version, cuda)
    assert says in line["text"] and "pip install" in line["text"]


def test_other_platforms_are_refused_and_supported_versions_are_not():
    assert support.objection("2.11.0", "13.0", "darwin", "arm64")[0] == "not-linux"
    assert support.objection("2.11.0", "13.0", "linux", "aarch64")[0] == "not-x86-64"
    assert support.objection("2.11.1+cu130", "13.0", "linux", "x86_64") is None
    assert support.objection("2.8.0+cu128", "12.8", "linux", "x86_64") is None
    assert "not been compared with a GPU" in support.remark("2.8.0+cu128")
    assert support.remark("2.11.0+cu130") is None


def test_a_python_without_torch_leaves_its_error(bare):
    script = bare.file("no_torch.py", "import torch\n")
    run = bare.command([without_torch(bare), script])
    assert "ModuleNotFoundError" in run.stderr
    assert run.process.one("begin")["torch"] is None
    assert run.process.end["why"] == "exception"
    assert run.process.end["exception"]["type"] == "ModuleNotFoundError"
    assert run.process.end["exception"]["user_frame"]["text"] == "import torch"


def test_a_missing_torch_that_the_program_can_do_without_leaves_nothing(bare):
    script = bare.file("optional.py", "try:\n    import torch\nexcept ImportError:\n    print('without')\n")
    run = bare.command([without_torch(bare), script])
    assert (run.returncode, run.stdout, run.processes) == (0, "without\n", [])
