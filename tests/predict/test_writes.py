"""What a script writes on a phantom goes into a layer of its own: it reads it back, and nothing of the user's changes."""

import json
import socket

import pytest
from harness import PYTHON

# The checkpoint and the log of yesterday are read, replaced, renamed and removed; a child process sees it all.
RESUMES = """
import os, subprocess, torch
assert open("log.txt").read() == "yesterday\\n"
start = int(open("step.txt").read())
net = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(start, start + 4):
    net(torch.randn(64, 256, device="cuda")).sum().backward()
    optimizer.step()
    torch.save(net.state_dict(), "last.tmp")
    os.replace("last.tmp", "last.pt")
    open("log.txt", "a").write("today\\n")
    open("step.txt", "w").write(str(step + 1))
os.rename("old", "older")
os.remove("older/best.pt")
os.symlink("last.pt", "latest")
subprocess.run("echo 1 > from-a-shell; rm gone", shell=True, check=True)
assert open("log.txt").read() == "yesterday\\n" + 4 * "today\\n"
assert torch.load("latest").keys() == {"weight", "bias"} and not os.path.exists("old")
assert open("from-a-shell").read() == "1\\n" and os.listdir("older") == []
print("began at", start)
"""

THERE = {"log.txt": "yesterday\n", "step.txt": "7", "last.pt": "weeks of training", "old/best.pt": "months", "gone": "here"}


@pytest.fixture
def project(plimsoll):
    for name, text in THERE.items():
        path = plimsoll.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    plimsoll.script(RESUMES)
    return plimsoll


def picture(folder):
    files = (it for it in folder.rglob("*") if it.name not in ("report.json", "plan.toml", "plan.diff"))
    return {it: (it.lstat().st_mtime_ns, it.lstat().st_ino, it.read_bytes() if it.is_file() else None) for it in files}


@pytest.mark.matrix(1)
@pytest.mark.parametrize("way", [None, "user", "traced"])
def test_a_run_reads_back_what_it_wrote_and_changes_nothing(project, way):
    before = picture(project.folder)
    environment = project.environment(**({"PLIMSOLL_WRITES_WAY": way} if way else {}))
    if way:
        environment["PLIMSOLL_PYTHON"] = project.cold()["PLIMSOLL_PYTHON"]
    ran = project.predict("train.py", options=["--gpu", "t4", "--until-exit"], environment=environment)
    if ran.code == 2 and "cannot separate the script's writes" in ran.stderr:
        pytest.skip(ran.stderr)
    assert ran.code == 0 and "began at 7" in ran.stdout, ran
    assert picture(project.folder) == before
    written = {it["path"].removeprefix(f"{project.folder}/"): it["kind"] for it in ran.report["writes"]["files"]}
    kinds = {"last.pt": "changed", "log.txt": "changed", "step.txt": "changed", "latest": "created", "from-a-shell": "created"}
    assert kinds.items() <= written.items() and written["gone"] == "deleted"
    (note,) = (it["text"] for it in ran.report["notes"] if it["code"] == "writes")
    assert "thrown away" in note and "still there" in note
    project.assert_nothing_left()


def test_what_was_written_is_kept_where_it_is_asked_for(project, tmp_path_factory):
    before = picture(project.folder)
    kept = tmp_path_factory.mktemp("elsewhere") / "kept"
    ran = project.predict("train.py", options=["--gpu", "t4", "--until-exit", "--writes", f"keep={kept}"])
    assert ran.code == 0 and picture(project.folder) == before, ran
    copy = kept / project.folder.relative_to("/")
    assert (copy / "log.txt").read_text() == "yesterday\n" + 4 * "today\n"
    assert str(project.folder / "gone") in (kept / "deleted.txt").read_text().splitlines()


def test_through_is_through(project):
    ran = project.predict("train.py", options=["--gpu", "t4", "--until-exit", "--writes", "through"])
    assert ran.code == 0 and ran.report["writes"]["way"] is None, ran
    assert (project.folder / "step.txt").read_text() == "11"


def test_a_script_that_writes_more_than_the_layer_may_take_is_ended(plimsoll):
    text = "import torch, os\ntorch.zeros(1).cuda()\nwhile True: open('large', 'ab').write(os.urandom(1 << 20))\n"
    ran = plimsoll.predict(plimsoll.script(text), options=["--gpu", "t4", "--writes-max", "64MiB"])
    ran.assert_sentence("wrote more than 64.0 MiB", "--writes-max")
    assert not (plimsoll.folder / "large").exists()
    plimsoll.assert_nothing_left()


def test_every_trial_of_fit_begins_where_a_run_of_yours_would(project):
    project.script(RESUMES.replace('print("began', 'print(open("/proc/self/stat").read(), "began'))
    before = picture(project.folder)
    ran = project.run("fit", "--gpu", "t4", "--budget", "700MiB", "--json", "-", "--", PYTHON, "train.py")
    assert ran.code == 0 and json.loads(ran.stdout)["outcome"] == "fits", ran
    assert picture(project.folder) == before
    project.assert_nothing_left()


DOWNLOADS = """
import hashlib, os, torch
blobs = os.path.expanduser("~/.cache/huggingface/hub/models--a/blobs")
weights = b"weights" * 1000
path = os.path.join(blobs, hashlib.sha256(weights).hexdigest())
print("there" if os.path.exists(path) else "downloads")
os.makedirs(blobs, exist_ok=True)
if not os.path.exists(path):
    open(path, "wb").write(weights)
open(os.path.join(blobs, "notes"), "x").write("of this run")
net = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(4):
    net(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
"""


def test_a_complete_download_is_there_in_the_next_run_and_nothing_else(plimsoll):
    home = plimsoll.folder / "home"
    home.mkdir()
    script = plimsoll.script(DOWNLOADS)
    environment = plimsoll.environment(HOME=str(home), PLIMSOLL_CACHE=str(plimsoll.folder / "cache"))
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        environment.pop(name, None)
    for said, n_kept in ("downloads", 1), ("there", 0):
        ran = plimsoll.predict(script, options=["--gpu", "t4", "--until-exit"], environment=environment)
        assert ran.code == 0 and said in ran.stdout, ran
        assert [it["bytes"] for it in ran.report["writes"]["downloads"]] == [7000] * n_kept
    assert list(home.iterdir()) == []


OFFLINE = """
import os, socket, subprocess, sys, torch
try:
    socket.create_connection(("127.0.0.1", int(os.environ["OUTSIDE"])), 5).sendall(b"from the script")
except OSError as error:
    print("outside:", error)
ours = socket.socket()
ours.bind(("127.0.0.1", 0))
ours.listen()
child = f"import socket; socket.create_connection(('localhost', {ours.getsockname()[1]}), 9).sendall(b'hello')"
with subprocess.Popen([sys.executable, "-c", child]):
    print("own:", ours.accept()[0].recv(9))
print("hub:", os.environ.get("HF_HUB_OFFLINE"))
net = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    net(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("way", [None, pytest.param("user", marks=pytest.mark.soak)])
def test_offline_a_script_reaches_its_own_processes_and_nobody_else(plimsoll, way):
    with socket.create_server(("127.0.0.1", 0)) as outside:
        outside.setblocking(False)
        environment = plimsoll.environment(OUTSIDE=str(outside.getsockname()[1]), **({"PLIMSOLL_WRITES_WAY": way} if way else {}))
        environment["PLIMSOLL_PYTHON"] = plimsoll.cold()["PLIMSOLL_PYTHON"]
        script = plimsoll.script(OFFLINE)
        ran = plimsoll.predict(script, options=["--gpu", "t4", "--until-exit", "--offline"], environment=environment)
        if ran.code == 2 and "--offline needs a mount or a user namespace" in ran.stderr:
            pytest.skip(ran.stderr)
        assert ran.code == 0, ran
        for said in "outside: [Errno 111] Connection refused", "own: b'hello'", "hub: 1":
            assert said in ran.stdout, ran
        with pytest.raises(BlockingIOError):
            outside.accept()


def test_tracing_cannot_take_the_network_away(plimsoll):
    environment = plimsoll.environment(PLIMSOLL_WRITES_WAY="traced")
    ran = plimsoll.predict(plimsoll.script(OFFLINE), options=["--gpu", "t4", "--offline"], environment=environment)
    ran.assert_sentence("--offline needs a mount or a user namespace", "remove --offline")
