"""Bytecode of installed packages and of the agent outlives the run that compiled it, and never a change of its source."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

AGENT = Path(__file__).parents[2] / "agent"
LOADS = """
import sys
compiled = []
sys.addaudithook(lambda event, args: compiled.append(str(args[1])) if event == "compile" else None)
import {name}
print({name}.VALUE, sum("{name}" in it for it in compiled))
"""


def load(folder, name, **more):
    environment = {"PYTHONPATH": os.pathsep.join([str(AGENT), str(folder)]), "PLIMSOLL_SESSION": str(folder), **more}
    environment = {it: os.environ[it] for it in os.environ if it != "PYTHONDONTWRITEBYTECODE"} | environment
    done = subprocess.run([sys.executable, "-c", LOADS.format(name=name)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_what_is_compiled_once_is_found_again_until_its_source_changes(tmp_path):
    packages, kept = tmp_path / "site-packages", tmp_path / "kept"
    packages.mkdir()
    source = packages / "installed.py"
    source.write_text("VALUE = 1\n")
    times = source.stat()
    run = {"PLIMSOLL_BYTECODE": str(kept), "PLIMSOLL_MODE": "predict"}
    assert load(packages, "installed", **run) == ["1", "1"]
    shutil.rmtree(packages / "__pycache__")  # as a layer goes
    assert load(packages, "installed", **run) == ["1", "0"]
    # Another version of it, which an installer gave the same length and time.
    source.write_text("VALUE = 2\n")
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert load(packages, "installed", **run) == ["2", "1"]
    # A run on a real GPU keeps nothing apart.
    shutil.rmtree(packages / "__pycache__")
    assert load(packages, "installed") == ["2", "1"]


def test_it_is_kept_where_none_may_be_written_beside_the_sources(tmp_path):
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "installed.py").write_text("VALUE = 1\n")
    run = {"PLIMSOLL_BYTECODE": str(tmp_path / "kept"), "PLIMSOLL_MODE": "predict", "PYTHONDONTWRITEBYTECODE": "1"}
    assert load(packages, "installed", **run) == ["1", "1"]
    assert load(packages, "installed", **run) == ["1", "0"]
    assert os.listdir(packages) == ["installed.py"]


def test_a_module_of_the_users_is_not_kept(tmp_path):
    (tmp_path / "own.py").write_text("VALUE = 1\n")
    run = {"PLIMSOLL_BYTECODE": str(tmp_path / "kept"), "PLIMSOLL_MODE": "predict"}
    assert load(tmp_path, "own", **run) == ["1", "1"]
    shutil.rmtree(tmp_path / "__pycache__")
    assert load(tmp_path, "own", **run) == ["1", "1"]
    assert not list((tmp_path / "kept").rglob("*own*.pyc"))


def test_the_agents_own_is_kept(tmp_path):
    agent = tmp_path / "agent"
    shutil.copytree(AGENT, agent, ignore=shutil.ignore_patterns("__pycache__"))
    run = {"PLIMSOLL_BYTECODE": str(tmp_path / "kept"), "PLIMSOLL_MODE": "predict", "PYTHONPATH": str(agent)}
    text = "import sys; sys.addaudithook(lambda event, args: event == 'compile' and print(args[1])); import plimsoll_agent.run.recording"
    environment = os.environ | run | {"PLIMSOLL_SESSION": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def compiled():
        done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return "recording.py" in done.stdout

    assert compiled()
    for it in agent.rglob("__pycache__"):
        shutil.rmtree(it)  # as a layer goes
    assert not compiled()
