"""Which code a person wrote for this run."""

import subprocess
import sys

import pytest
from harness import ROOT

ASK = "import sys; sys.path.insert(0, %r); from plimsoll_agent.run import frames; print(frames.is_users(sys.argv[1]))" % str(ROOT / "agent")


@pytest.mark.parametrize("file, is_users", [("/home/me/train.py", True), ("uvloop/loop.pyx", False), ("/env/lib/python3.12/site-packages/vllm/core.py", False)])
def test_what_was_compiled_or_installed_is_nobodys_own(file, is_users):
    assert asked([sys.executable, "-c", ASK, file]) == is_users


def test_text_that_is_executed_is_the_users_only_in_a_command(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(ASK)
    assert asked([sys.executable, "-c", ASK, "<string>"])
    assert not asked([sys.executable, script, "<string>"]), "as dataclasses executes it"
    assert not asked([sys.executable, "-c", ASK, "<string>", "--multiprocessing-fork"]), "a child that multiprocessing spawns"


def asked(command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "True"
