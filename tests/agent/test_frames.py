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


def test_a_module_of_the_users_is_found_within_a_package_that_others_share(tmp_path):
    lines = ["import sys; sys.path[:0] = [%r, %r, %r]" % (str(ROOT / "agent"), str(tmp_path / "mine"), str(tmp_path / "site-packages"))]
    for folder, text in (("site-packages/alone", ""), ("site-packages/shared", EXTENDED), ("mine/shared", EXTENDED), ("mine/open", None)):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "part.py").write_text("")
        if text is not None:
            (tmp_path / folder / "__init__.py").write_text(text)
    (tmp_path / "site-packages/shared/other.py").write_text("")
    lines += ["import alone.part, shared.other, shared.part, open.part, json.decoder", "from plimsoll_agent.run import frames"]
    lines += ["for _ in range(2): print(*sorted(file[len(%r) + 1:] for _, file in frames.modules_of_users()))" % str(tmp_path)]
    said = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True).stdout
    assert said == "mine/open/part.py mine/shared/__init__.py mine/shared/part.py\n" * 2


EXTENDED = "__path__ = __import__('pkgutil').extend_path(__path__, __name__)"
