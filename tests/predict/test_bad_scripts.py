"""Scripts and environments that are wrong. Each ends in one clear sentence, and nothing stays behind."""

import os
import signal
import subprocess
import sys
import time

import pytest
from harness import PYTHON, Ran, binary

MODEL = """
import os, sys, torch
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 1)).cuda()
optimizer = torch.optim.Adam(model.parameters())
def step():
    optimizer.zero_grad()
    model(torch.randn(32, 256, device="cuda")).sum().backward()
    optimizer.step()
"""


def test_raises(plimsoll):
    script = plimsoll.script(MODEL + "step()\nraise ValueError('no such thing')\n")
    ran = plimsoll.predict(script)
    ran.assert_sentence("raised ValueError: no such thing", "train.py:10", "after 1 optimizer step")
    assert "Traceback" in ran.stderr, "Python's own words stay"
    assert "plimsoll_agent" not in ran.stderr


def test_what_works_on_after_its_end_is_no_standstill(plimsoll):
    """The script is a child of a server that was there before, as the tests' warm Python starts it."""
    script = plimsoll.script(
        MODEL
        + """
import atexit, time
def works():
    until = time.monotonic() + 3.6
    while time.monotonic() < until: pass
atexit.register(works)
for _ in range(6): step()
"""
    )
    ran = plimsoll.predict(script)
    assert ran.code == 0 and ran.report["outcome"] == "fits", ran


def test_divides_by_what_only_the_gpu_knows(plimsoll):
    """The sentence says that the zero is ours, and where it was read."""
    script = plimsoll.script(MODEL + "step()\nfound = (torch.empty(100, device='cuda').log_normal_() > 0).sum().item()\nprint(1 / found)\n")
    ran = plimsoll.predict(script)
    ran.assert_sentence("raised ZeroDivisionError", "train.py:11", "values that the GPU computes are zero", "train.py:10")


def test_data_that_is_not_there(plimsoll):
    script = plimsoll.script("import torch\nopen('data/train.bin', 'rb')\n")
    plimsoll.predict(script).assert_sentence("FileNotFoundError", "data/train.bin", "train.py:2")


def test_sys_exit(plimsoll):
    plimsoll.predict(plimsoll.script(MODEL + "sys.exit(3)\n")).assert_sentence("exited with code 3")


def test_syntax_error(plimsoll):
    plimsoll.predict(plimsoll.script("import torch\nif\n")).assert_sentence("exited with code 1")


def test_does_not_exist(plimsoll):
    plimsoll.predict(PYTHON, "nothing.py").assert_sentence("the script nothing.py does not exist")


def test_never_uses_the_gpu(plimsoll):
    plimsoll.predict(plimsoll.script("import torch\ntorch.ones(3)\n")).assert_sentence("without using a GPU")


def test_never_trains(plimsoll):
    called = "with torch.no_grad(): model(torch.randn(8, 256, device='cuda'))\n"
    for more in ("", called, "try: model(torch.randn(8, 255, device='cuda'))\nexcept Exception: pass\n"):
        ran = plimsoll.predict(plimsoll.script(MODEL + more), options=["--gpu", "h200"])
        ran.assert_sentence("no training step ran: the script has an optimizer and ended without a backward pass")
        ran.assert_sentence(". Before training it needs ")
    # A backward pass whose step never came is likely an error that the script caught.
    ran = plimsoll.predict(plimsoll.script(MODEL + "model(torch.randn(8, 256, device='cuda')).sum().backward()\n"), options=["--gpu", "h200"])
    ran.assert_sentence("has an optimizer and ended without a training step")
    # One that has none was not meant to.
    ran = plimsoll.predict(plimsoll.script(MODEL.replace("optimizer = ", "# ") + called), options=["--gpu", "h200"])
    assert ran.code == 0 and (ran.report["steps_seen"], ran.report["counted"]) == (1, "forward_passes"), ran
    assert "1 forward pass; the script has no optimizer" in str(ran.report["notes"]), ran


@pytest.mark.soak
def test_grows(plimsoll):
    script = plimsoll.script(MODEL + "kept = []\nfor _ in range(10**6):\n    step()\n    kept.append(torch.empty(2**20, device='cuda'))\n")
    ran = plimsoll.predict(script, options=["--gpu", "h200"])
    assert (ran.code, ran.report["outcome"], ran.report["safe_bytes"]) == (1, "grows", None), ran
    assert ran.report["growth_bytes_per_step"] == 4 << 20 and 30_000 < ran.report["runs_out_at_step"] < 40_000, ran
    assert ran.report["growth_at"]["line"] == 12, ran
    assert ran.report["findings"][0]["code"] == "growth/per-step", ran
    assert "GROWS 4.0 MiB a step at train.py:12" in ran.stdout, ran


def test_never_imports_torch(plimsoll):
    plimsoll.predict(plimsoll.script("print('hello')\n")).assert_sentence("train.py ended and imported no torch; is it the script that trains?")
    plimsoll.predict(plimsoll.script("\n")).assert_sentence("is empty; give the script that trains")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM], ids=lambda it: it.name)
def test_killed(plimsoll, number):
    # By somebody else: one that ends itself has its report.
    script = plimsoll.script(MODEL + f"step()\nos.system('kill -{int(number)} %d' % os.getpid())\n")
    plimsoll.predict(script).assert_sentence(number.name)


@pytest.mark.soak
def test_a_hundred_megabytes_of_output(plimsoll):
    script = plimsoll.script(MODEL + "for _ in range(10): sys.stdout.write('x' * 10_000_000)\nfor _ in range(5): step()\n")
    ran = plimsoll.predict(script, options=["--gpu", "h200"])
    assert ran.code == 0
    assert ran.stdout.count("x") >= 100_000_000


def test_json_on_standard_output(plimsoll):
    import json

    script = plimsoll.script(MODEL + "print('from the script')\nfor _ in range(9): step()\n")
    ran = plimsoll.run("predict", "--gpu", "h200", "--json", "-", "--", script)
    assert ran.code == 0, ran
    assert json.loads(ran.stdout)["outcome"] == "fits"
    assert "from the script" in ran.stderr


def test_ctrl_c(plimsoll):
    script = plimsoll.script(
        MODEL + "import time\nstep()\ntry:\n    print('running', flush=True)\n    time.sleep(100)\n"
        "finally:\n    print('cleaned', flush=True)\n"
    )
    # A session of its own, so that the signal reaches the whole group as a terminal's would.
    process = plimsoll.start("predict", "--", script, environment=plimsoll.cold(), start_new_session=True)
    assert process.stdout.readline() == "running\n"
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 2, stderr
    assert "plimsoll: interrupted after 1 optimizer step" in stderr
    assert "cleaned\n" in stdout
    plimsoll.assert_nothing_left()


@pytest.mark.soak
def test_a_child_that_waits_for_a_parent_that_failed_is_not_waited_for(plimsoll):
    """On a GPU this hangs for ever; here the report is what matters."""
    script = plimsoll.script("""
import multiprocessing
queue = multiprocessing.Queue()
multiprocessing.Process(target=queue.get).start()
import torch
torch.empty(1 << 42, device="cuda")
""")
    ran = plimsoll.predict(script, options=["--gpu", "b200"], environment=plimsoll.cold())
    assert (ran.code, ran.report["outcome"]) == (1, "out_of_memory"), ran
    assert "ended 1 remaining process of the script" in ran.stderr
    plimsoll.assert_nothing_left()


@pytest.mark.soak
def test_leaves_a_process_running(plimsoll):
    script = plimsoll.script(
        MODEL + "import subprocess\n"
        "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "print('pid', child.pid, flush=True)\nfor _ in range(9): step()\n"
    )
    ran = plimsoll.predict(script, options=["--gpu", "h200"], environment=plimsoll.cold())
    assert ran.code == 0, ran
    assert "ended 1 remaining process of the script" in ran.stderr
    (pid,) = (it.split()[1] for it in ran.stdout.splitlines() if it.startswith("pid "))
    time.sleep(0.1)
    assert subprocess.run(["kill", "-0", pid], capture_output=True).returncode != 0


@pytest.mark.parametrize("option", ["-I", "-S", "-E"])
def test_options_that_shut_the_agent_out(plimsoll, option):
    script = plimsoll.script("print('hello')\n")
    plimsoll.predict(PYTHON, option, script).assert_sentence(f"python {option} keeps plimsoll's agent from loading")


def test_python_without_torch(plimsoll):
    folder = plimsoll.folder / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    script = plimsoll.script("import torch\n")
    plimsoll.predict(folder / "bin" / "python", script).assert_sentence("needs torch", "has no torch")
    # Through a launcher, too.
    launcher = plimsoll.script(f"#!/bin/sh\n{folder}/bin/python train.py\n", name="train.sh")
    plimsoll.predict("bash", launcher).assert_sentence("needs torch", "has no torch")


@pytest.mark.parametrize(
    ("version", "cuda", "says"),
    [("2.11.0+cpu", None, "without CUDA"), ("2.5.1+cu124", "12.4", "2.5.1"), ("2.7.1+cu118", "11.8", "CUDA 11.8")],
)
def test_another_torch(plimsoll, version, cuda, says):
    package = plimsoll.folder / "elsewhere" / "torch"
    package.mkdir(parents=True)
    package.joinpath("__init__.py").write_text("from .version import __version__\n")
    package.joinpath("version.py").write_text(f"__version__ = {version!r}\ncuda = {cuda!r}\n")
    script = plimsoll.script("import torch\nprint('went on')\n")
    environment = plimsoll.environment(PYTHONPATH=str(package.parent))
    ran = plimsoll.predict(script, environment=environment)
    ran.assert_sentence(says, "pip install torch")
    assert "went on" not in ran.stdout
    doctor = plimsoll.run("doctor", environment=environment)
    assert doctor.code == 2 and says in doctor.stdout, doctor


def test_hidden_devices(plimsoll):
    script = plimsoll.script("import torch\nprint(torch.cuda.device_count())\n")
    ran = plimsoll.predict(script, environment=plimsoll.environment(CUDA_VISIBLE_DEVICES=""))
    ran.assert_sentence("CUDA_VISIBLE_DEVICES")


def test_doctor(plimsoll):
    ran = plimsoll.run("doctor", environment=plimsoll.cold())
    assert ran.code == 0, ran
    assert ran.stdout.endswith("\nable to predict\n"), ran
    plimsoll.assert_nothing_left()


WAITS = {
    "import": "print('ready', flush=True)\nimport time\ntime.sleep(0.05)\nimport torch\ntime.sleep(100)\n",
    "training": MODEL + "import time\nstep()\nprint('ready', flush=True)\nwhile True: time.sleep(0.01); kept = torch.randn(32, device='cuda')\n",
    "loader": MODEL
    + """
import time
class Slow(torch.utils.data.Dataset):
    def __len__(self): return 10_000
    def __getitem__(self, i):
        if i == 40: print('ready', flush=True)
        time.sleep(0.1)
        return torch.randn(256)
for x in torch.utils.data.DataLoader(Slow(), 16, num_workers=3):
    model(x.cuda()).sum().backward()
""",
}


@pytest.mark.matrix(1)
@pytest.mark.parametrize("where", sorted(WAITS))
def test_ctrl_c_wherever_it_comes(plimsoll, where):
    script = plimsoll.script(WAITS[where])
    process = plimsoll.start("predict", "--", script, environment=plimsoll.cold(), start_new_session=True)
    assert process.stdout.readline() == "ready\n", process.communicate()
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 2, stderr
    sentences = [line for line in stderr.splitlines() if line.startswith("plimsoll: ")]
    assert len(sentences) == 1 and sentences[0].startswith("plimsoll: interrupted"), stderr
    plimsoll.assert_nothing_left()
    everybody = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert str(plimsoll.folder) not in everybody


def test_a_home_that_cannot_be_written(plimsoll):
    """/proc is read-only for everybody, root too."""
    environment = plimsoll.environment(HOME="/proc", TMPDIR=str(plimsoll.folder))
    for name in ("PLIMSOLL_CACHE", "XDG_CACHE_HOME"):
        environment.pop(name, None)
    script = plimsoll.script(MODEL + "for _ in range(9): step()\n")
    ran = plimsoll.predict(script, options=["--gpu", "h200"], environment=environment)
    assert ran.code == 0, ran
    (cache,) = plimsoll.folder.glob("plimsoll-*")
    assert not list((cache / "plimsoll-cache" / "sessions").iterdir())
    nowhere = plimsoll.run("predict", script, environment=environment | {"TMPDIR": "/proc"})
    nowhere.assert_sentence("found no folder to unpack into", "set PLIMSOLL_CACHE")


@pytest.mark.soak
@pytest.mark.parametrize(("mebibytes", "says"), [(1, "too little space"), (70, "was full while the script ran")], ids=["before", "during"])
def test_no_disk_left(plimsoll, mebibytes, says):
    """On a small disk of our own; the second one is full only once the script has filled it."""
    disk = plimsoll.folder / "disk"
    disk.mkdir()
    script = plimsoll.script(
        MODEL + "step()\ntry:\n    with open('disk/large', 'wb', 0) as file:\n        while True: file.write(b'x' * 100_000)\n"
        "except OSError: pass\nfor _ in range(9): step()\n"
    )
    mount = f"mount -t tmpfs -o size={mebibytes}M tmpfs {disk} && exec \"$@\""
    small = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    if subprocess.run([*small, "true"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount a small disk")
    environment = plimsoll.cold(PLIMSOLL_CACHE=str(disk / "cache"))  # Nothing outside sees that disk.
    command = [*small, binary(), "predict", "--gpu", "h200", "--", script]
    done = subprocess.run(command, cwd=plimsoll.folder, env=environment, capture_output=True, text=True)
    ran = Ran(done.returncode, done.stdout, done.stderr, None)
    ran.assert_sentence(says, "PLIMSOLL_CACHE")
