"""A folder of a stranger's, in which somebody tries plimsoll: no code of it runs but the command that they give, and what that leaves behind runs never."""

import json
import os
import socket
import subprocess
import sys

import pytest
from harness import COLD, ROOT, binary, clean_environment

# Says by a datagram who it is: in a layer nothing that it writes would be seen. `_socket` and `sys` are in no folder of the user's.
SAYS = """
import _socket, sys
it = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM, 0)
it.sendto(repr((__name__, sys.argv)).encode(), ("127.0.0.1", {port}))
"""

TRAIN = """
import torch

def train():
    layer = torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    for _ in range(5):
        optimizer.zero_grad()
        layer(torch.randn(8, 64, device="cuda")).sum().backward()
        optimizer.step()

if __name__ == "__main__":
    train()
"""

ASK = """
import sys
sys.path.insert(0, {folder!r})
import plimsoll, train
print(plimsoll.predict(train.train, gpu="t4"))
"""

GOLDENS = 'version = 1\n[scripts.train]\ncommand = ["{python}", "ours/train.py"]\ngpu = "t4"\n'


class Folder:
    """What a stranger may have put beside the script: modules under the name of every one that Python or we import, and more."""

    def __init__(self, folder):
        self.path = folder
        self._door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._door.bind(("127.0.0.1", 0))
        self._door.setblocking(False)
        self.says = SAYS.format(port=self._door.getsockname()[1])
        others = "torch numpy version sitecustomize usercustomize plimsoll plimsoll_agent cloudpickle triton pip runpy __main__ conftest"
        for name in {*sys.stdlib_module_names, *others.split()} - {"_socket", "sys", "__future__"}:
            (folder / f"{name}.py").write_text(self.says)
        (folder / "torch.pth").write_text("import torch\n")
        (folder / "pyvenv.cfg").write_text("home = .\n")
        ours = folder / "ours"
        ours.mkdir()
        (ours / "train.py").write_text(TRAIN)
        (folder / "plimsoll-check.toml").write_text(GOLDENS.format(python=COLD))

    def heard(self):
        res = []
        try:
            while True:
                res.append(self._door.recv(4096).decode())
        except BlockingIOError:
            return res


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "of-a-stranger"
    path.mkdir()
    return Folder(path)


def run(folder, words, cache, **more):
    environment = clean_environment() | {"PLIMSOLL_CACHE": str(cache), "PLIMSOLL_PYTHON": COLD, "PLIMSOLL_BIN": binary(), "PYTHONSTARTUP": "code.py"} | more
    return subprocess.run(words, cwd=folder.path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)


def test_a_module_of_the_folder_would_be_heard(folder, cache):
    """This is a test of the tests."""
    run(folder, [COLD, "-c", "import json"], cache)
    assert folder.heard()


SCRIPT = ["--", COLD, "ours/train.py"]
COMMANDS = {
    "doctor": (0, ["doctor"]),
    "predict": (0, ["predict", *SCRIPT]),
    "predict a script": (0, ["predict", "--", "ours/train.py"]),
    "fit": (0, ["fit", "--gpu", "t4", *SCRIPT]),
    "check": (2, ["check"]),
    "lint": (0, ["lint", "ours"]),
    "lint --confirm": (0, ["lint", "--confirm", "--gpu", "t4", *SCRIPT]),
    "run": (0, ["run", "--no-gpu", "--", COLD, "-c", "pass"]),
    "cards": (0, ["cards"]),
    "config": (0, ["config"]),
}
SHORT = ("doctor", "predict", "lint", "config")


@pytest.mark.soak
@pytest.mark.parametrize("name", [pytest.param(it, marks=[] if it in SHORT else [pytest.mark.soak]) for it in COMMANDS])
def test_no_module_of_the_folder_is_imported(folder, cache, name):
    code, words = COMMANDS[name]
    if name == "run":
        words = [*words[:-2], "ours/nothing.py"]
        (folder.path / "ours/nothing.py").write_text("print('ran')\n")
    # An empty part of a path is the working folder; a user's own command would look there too, and ours has no reason to.
    more = {"PYTHONPATH": os.pathsep + "."} if name == "doctor" else {}
    ran = run(folder, [binary(), *words], cache, **more)
    assert not folder.heard(), ran
    assert ran.returncode == code, ran


@pytest.mark.soak
@pytest.mark.skipif(sys.version_info < (3, 11), reason="before 3.11 Python cannot be told to leave the working folder out")
def test_a_function_is_predicted_without_the_folder(folder, cache, tmp_path):
    script = tmp_path / "ask.py"
    script.write_text(ASK.format(folder=str(folder.path / "ours")))
    ran = run(folder, [COLD, str(script)], cache, PYTHONPATH=str(ROOT / "python"))
    assert not folder.heard() and ran.returncode == 0 and "fits Tesla T4" in ran.stdout, ran


LEAVES = """
import os, sys
says = {says!r}
folder = os.environ["PYTHONPATH"].split(":")[0]
for name in "usercustomize.py", "colorsys.py", "torch.py":
    try:
        with open(os.path.join(folder, name), "w") as file:
            file.write(says)
    except OSError as error:
        print(error)
for above, _, files in os.walk(folder):
    for name in files:
        # Bytecode that Python takes without a look at the source (PEP 552).
        import importlib.util, marshal
        if name.endswith(".py"):
            place = importlib.util.cache_from_source(os.path.join(above, name))
            try:
                os.makedirs(os.path.dirname(place), exist_ok=True)
                with open(place, "wb") as file:
                    file.write(importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + marshal.dumps(compile(says, name, "exec")))
            except OSError as error:
                print(error)
"""


@pytest.mark.parametrize("way", ["mounts", "user", "traced"])
def test_what_a_script_leaves_runs_in_no_later_run(folder, tmp_path, way):
    cache = tmp_path / "cache"
    hostile, innocent = folder.path / "ours/hostile.py", folder.path / "ours/innocent.py"
    hostile.write_text(LEAVES.format(says=folder.says))
    innocent.write_text("import colorsys, json\nprint('ran')\n")
    tried = run(folder, [binary(), "predict", "--gpu", "t4", "--", COLD, str(hostile)], cache, PLIMSOLL_WRITES_WAY=way)
    if "cannot separate the script's writes" in tried.stderr:
        pytest.skip(tried.stderr)
    folder.heard()
    ran = run(folder, [binary(), "run", "--no-gpu", "--", COLD, str(innocent)], cache)
    assert "ran" in ran.stdout, ran
    assert not folder.heard(), (tried, ran)


def test_a_strangers_settings_let_nothing_through(folder, cache):
    """`config` says who may say what; here it is tried with a script."""
    (folder.path / "plimsoll.toml").write_text('writes = "through"\n')
    (folder.path / "ours/train.py").write_text("open('harm', 'w').write('harm')\n")
    ran = run(folder, [binary(), "predict", "--quiet", *SCRIPT], cache)
    assert ran.returncode == 2 and "a project's file may not set writes" in ran.stderr, ran
    assert not (folder.path / "harm").exists()
    settings = json.loads(run(folder, [binary(), "config", "--json"], cache, PLIMSOLL_WRITES="layer").stdout or "null")
    assert settings is None
