"""`plimsoll fit` and `plimsoll run` on small scripts: what is answered can be checked with `predict`."""

import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest
from harness import COLD, PYTHON, binary

MLP = """
import sys, torch
from torch import nn
batch = int(sys.argv[1])
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(batch, 1024, device="cuda")).pow(2).mean().backward()
    optimizer.step()
"""

DEEP = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(256, 1024), nn.Linear(1024, 256)
    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))

model = nn.Sequential(*(Block() for _ in range(16))).cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(6):
    optimizer.zero_grad()
    model(torch.randn(8192, 256, device="cuda")).pow(2).mean().backward()
    optimizer.step()
"""


@pytest.mark.soak
def test_the_largest_batch_fits_and_the_next_does_not(plimsoll):
    plimsoll.script(MLP)
    path = plimsoll.folder / "found.json"
    command = [PYTHON, "train.py", "{batch}"]
    limits = ["--gpu", "t4", "--budget", "874MiB"]
    ran = plimsoll.run("fit", "--find-max", "batch=1..1000000", *limits, "--json", path, "--", *command)
    assert ran.code == 0, ran
    answer = json.loads(path.read_text())
    found = answer["found"]["batch"]
    assert answer["next"] == {"value": found + 1, "outcome": "out_of_memory"}
    # Halving a million takes 20; this program's memory grows by whole segments, of which no line tells.
    assert answer["runs"] == len(answer["tried"]) < 20
    for batch, code in ((found, 0), (found + 1, 1)):
        options = ("--gpu", "t4", "--memory", "874MiB")
        predicted = plimsoll.predict(PYTHON, "train.py", batch, options=options)
        assert predicted.code == code
        # The two say the same of what only just fits.
        assert code or ("TIGHT" in predicted.stdout) == ("TIGHT" in ran.stdout), (predicted, ran)


STAGES = """
import sys, torch
net = torch.nn.Conv2d(3, 8, 3).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for size in (64, 128, 256):
    for step in range(400):
        net(torch.zeros(int(sys.argv[1]), 3, size, size, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_a_value_whose_run_did_not_come_to_all_of_the_script_fits_so_far(plimsoll):
    """As `predict` says of the same command. And the last value that was asked for is called that."""
    plimsoll.script(STAGES)
    ran = plimsoll.run("fit", "--find-max", "batch=1..6:2", "--gpu", "t4", "--json", "found.json", "--", PYTHON, "train.py", "{batch}")
    answer, said = json.loads((plimsoll.folder / "found.json").read_text()), " ".join(ran.stdout.split())
    assert said.startswith("FITS SO FAR: batch=5 fits") and "it is the end of the range" in said, ran
    assert ran.code == 2 and "was seen in turn 1 of 3 only" in answer["so_far"] and answer["so_far"] in said, answer
    predicted = plimsoll.predict(PYTHON, "train.py", 5, options=("--gpu", "t4"))
    assert (predicted.code, predicted.report["verdict"]) == (2, "fits_so_far"), predicted


@pytest.mark.soak
def test_the_largest_batch_with_each_set_of_remedies(plimsoll):
    """What a row promises fits with these remedies, and the next value does not."""
    script = DEEP.replace("import torch\n", "import sys, torch\n", 1).replace("8192", "int(sys.argv[1])")
    plimsoll.script(script.replace("range(6)", "range(3)"))
    path = plimsoll.folder / "found.json"
    options = ["--find-max", "batch=4096..131072:4096", "--by-remedies", "--gpu", "a100-40g", "--budget", "2GiB"]
    options += ["--allow", "checkpoint", "--json", path]
    ran = plimsoll.run("fit", *options, "--", PYTHON, "train.py", "{batch}", timeout=600)
    assert ran.code == 0 and "per batch" in ran.stdout, ran
    answer = json.loads(path.read_text())
    rows = {" + ".join(it["remedies"]): it for it in answer["by_remedies"]}
    assert list(rows) == ["", "checkpoint"]
    assert rows[""]["found"] == answer["found"]["batch"] < rows["checkpoint"]["found"]
    assert all(it["peak_device_bytes"] <= answer["limit"]["bytes"] for it in rows.values())
    assert rows["checkpoint"]["time_factor"] > 1 and rows[""]["time_factor_per_value"] == 1
    (plimsoll.folder / "plan.toml").write_text('version = 1\n[[remedy]]\nid = "checkpoint"\n')
    found = rows["checkpoint"]["found"]
    for batch, code in ((found, 0), (found + 4096, 1)):
        command = [binary(), "run", "--plan", "plan.toml", "--", PYTHON, "train.py", batch]
        assert plimsoll.predict(*command, options=("--gpu", "a100-40g", "--memory", "2GiB")).code == code


def test_a_plan_that_fits_and_that_run_applies(plimsoll):
    plimsoll.script(DEEP)
    path = plimsoll.folder / "fit.json"
    options = ["--gpu", "t4", "--budget", "1050MiB", "--keep-numerics", "--forbid", "micro-batches,offload"]
    ran = plimsoll.run("fit", *options, "--json", path, "--", PYTHON, "train.py", timeout=900)
    assert ran.code == 0, ran
    answer = json.loads(path.read_text())
    assert answer["outcome"] == "fits_with_plan"
    assert answer["as_it_is"]["needs_bytes"] > 1050 << 20 >= answer["plans"][0]["needs_bytes"]
    assert any("checkpoint" in it for it in answer["plans"][0]["remedies"])
    assert (plimsoll.folder / "plan.toml").read_text().startswith("# Made by `plimsoll fit`")


FRAGMENTS = """
import torch
from torch import nn
model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(6))).cuda()
optimizer = torch.optim.Adam(model.parameters())
for batch in [10_000, 13_000, 17_000, 22_000, 29_000] * 2:
    optimizer.zero_grad()
    model(torch.randn(batch, 1024, device="cuda")).pow(2).mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "allow, expected",
    [
        pytest.param("allocator", "allocator (expandable_segments:True)", marks=pytest.mark.soak),
        pytest.param("empty-cache", "empty-cache (after step)", marks=pytest.mark.soak),
    ],
)
def test_settings_of_the_allocator_that_a_replay_is_content_with(plimsoll, allow, expected):
    """No step fits into what the step before left: most of what is reserved is free."""
    plimsoll.script(FRAGMENTS)
    plain = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "t4")).report
    budget = plain["safe_bytes"] - (plain["peak_reserved_bytes"] - plain["peak_allocated_bytes"]) // 2
    path = plimsoll.folder / "fit.json"
    options = ["--gpu", "t4", "--budget", budget, "--allow", allow, "--json", path]
    ran = plimsoll.run("fit", *options, "--", PYTHON, "train.py", timeout=900)
    assert ran.code == 0, ran
    plan = json.loads(path.read_text())["plans"][0]
    assert plan["remedies"] == [expected] and plan["numbers"] == "same"
    assert plan["peak_reserved_bytes"] < plain["peak_reserved_bytes"] - plain["peak_allocated_bytes"] // 2
    if allow == "allocator":
        # The changed script is as the plan is.
        diff = (plimsoll.folder / "plan.diff").read_text()
        assert '+os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"' in diff and "by hand" not in ran.stdout, ran
        subprocess.run(["patch", "-p0"], input=diff, text=True, check=True, cwd=plimsoll.folder)
        after = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "t4")).report
        assert after["peak_reserved_bytes"] == plan["peak_reserved_bytes"]


def test_a_script_that_fits_has_a_plan_to_compare_its_first_step_with(plimsoll):
    plimsoll.script(MLP)
    assert plimsoll.run("fit", "--gpu", "t4", "--", PYTHON, "train.py", 64).code == 0
    plan = (plimsoll.folder / "plan.toml").read_text()
    assert "[first_step]" in plan and 'inputs = ["args[0] 64x1024 float32"]' in plan and "[[remedy]]" not in plan
    assert plimsoll.run("run", "--no-gpu", "--plan", "plan.toml", "--", "true").code == 0


LOOKS_FOR_TORCH = 'import os, sys\nis_fresh = "torch" not in sys.modules\n'
SAYS_SO = 'print(is_fresh, file=open(os.environ["MARKS"] + "/fresh", "a"), flush=True)\n'


def written_through(plimsoll):
    """A folder that a script finds as MARKS, to be given as `--through`, and the environment."""
    marks = plimsoll.folder / "marks"
    marks.mkdir()
    return marks, plimsoll.environment(MARKS=str(marks))


SETS = pytest.param("os.environ['A_SETTING'] = '1'\n", True, marks=pytest.mark.soak)


@pytest.mark.soak
@pytest.mark.parametrize("more, is_fresh", [("", False), SETS])
def test_the_last_run_has_imports_of_its_own_where_they_could_be_others(plimsoll, more, is_fresh):
    """A fork of what has imported torch already is not the same where the script changes the environment."""
    plimsoll.script(LOOKS_FOR_TORCH + more + MLP.replace("batch =", SAYS_SO + "batch =", 1))
    marks, environment = written_through(plimsoll)
    assert plimsoll.run("fit", "--gpu", "t4", "--through", marks, "--", COLD, "train.py", 64, environment=environment).code == 0
    seen = (marks / "fresh").read_text().split()
    assert seen == ["False", "False", str(is_fresh)]


TEXTS = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel
model = GPT2LMHeadModel(GPT2Config(vocab_size=4000, n_positions=512, n_embd=256, n_layer=4, n_head=4)).cuda().train()
optimizer = torch.optim.AdamW(model.parameters())
rows = [torch.ones(20 + 7 * (i % 5), dtype=torch.long) for i in range(64)]
def collate(rows):
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return {"input_ids": ids, "labels": ids}
for _ in range(3):
    for batch in torch.utils.data.DataLoader(rows, batch_size=8, collate_fn=collate):
        optimizer.zero_grad()
        model(**{name: it.cuda() for name, it in batch.items()}).loss.backward()
        optimizer.step()
"""


@pytest.mark.soak
def test_a_plan_for_the_longest_batch_and_advice(plimsoll):
    plimsoll.script(TEXTS)
    path = plimsoll.folder / "fit.json"
    short = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "t4")).report
    long = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "t4", "--worst-seq", "512")).report
    assert short["peak_allocated_bytes"] * 2 < long["peak_allocated_bytes"]
    assert any("512 long: input_ids 8x512 instead of 8x" in it["text"] for it in long["notes"])
    options = ["--gpu", "t4", "--worst-seq", "512", "--advice", "--json", path]
    ran = plimsoll.run("fit", *options, "--", PYTHON, "train.py", timeout=900)
    assert ran.code == 0 and "input_ids 8x512 instead of 8x" in ran.stderr, ran
    answer = json.loads(path.read_text())
    assert answer["as_it_is"]["peak_allocated_bytes"] == long["peak_allocated_bytes"]
    assert "[first_step]" not in (plimsoll.folder / "plan.toml").read_text()
    needs = {"+".join(it["remedies"]): it["needs_bytes"] for it in answer["advice"]}
    assert set(needs) == {"shorter-sequence", "smaller-batch", "lora", "lora+quantization", "smaller-model"}
    # Masks of a model without convolutions take more than the script without changes, so pruning is not offered.
    assert max(needs.values()) < answer["as_it_is"]["needs_bytes"]
    assert needs["lora+quantization"] < needs["lora"]


SPARSE_LABELS = """
import sys, torch
from torch import nn
head = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 64)).cuda()
optimizer = torch.optim.Adam(head.parameters())
for _ in range(4):
    x = torch.randn(int(sys.argv[1]), 512, device="cuda")
    sure = torch.sigmoid(x @ torch.randn(512, device="cuda")) > 0.7
    loss = head(x[sure]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.soak
def test_what_decides_sizes_and_nobody_computed_is_said_below_the_answer(plimsoll):
    said = "the answer depends on values that a phantom does not compute: sizes follow from the results of nonzero()"
    line = f"! {said}; --assume gives them. `plimsoll predict` with the same command shows how"
    plimsoll.script(SPARSE_LABELS)
    path = plimsoll.folder / "fit.json"
    limits = ["--gpu", "t4", "--budget", "900MiB", "--json", path]
    for words, answer in ((["train.py", "200000"], "without changes: "), (["train.py", "1000"], "FITS without changes")):
        ran = plimsoll.run("fit", *limits, "--force", "--allow", "micro-batches", "--", PYTHON, *words)
        lines = ran.stdout.splitlines()
        at = lines.index(line)
        assert any(it.startswith(answer) for it in lines[:at]) and json.loads(path.read_text())["depends_on"] == said, ran
    assert json.loads(path.read_text())["if_everything_is_found"]["fits"] == (ran.code == 0), ran
    ran = plimsoll.run("fit", *limits, "--force", "--assume", "nonzero=0.5", "--", PYTHON, "train.py", "1000")
    assert "nobody computed" not in ran.stdout and json.loads(path.read_text())["depends_on"] is None, ran
    ran = plimsoll.run("fit", *limits, "--find-max", "batch=1000..2000", "--", PYTHON, "train.py", "{batch}")
    assert line in ran.stdout.splitlines() and json.loads(path.read_text())["depends_on"] == said, ran


@pytest.mark.soak
def test_the_largest_batch_whatever_masks_find(plimsoll):
    """One value for masks that find nothing, a smaller one for masks that find everything; both can be checked with `predict`."""
    plimsoll.script(SPARSE_LABELS)
    path = plimsoll.folder / "found.json"
    limits = ["--gpu", "t4", "--budget", "900MiB", "--json", path]
    ran = plimsoll.run("fit", *limits, "--find-max", "batch=1000..400000:1000", "--", PYTHON, "train.py", "{batch}")
    answer = json.loads(path.read_text())
    nothing, everything = answer["found"]["batch"], answer["if_everything_is_found"]["found"]["batch"]
    assert ran.code == 2 and 1000 < everything < nothing, ran
    assert ran.stdout.startswith(f"IT DEPENDS: batch={nothing} is the largest"), ran
    assert f"if they select everything, batch={everything} is the largest that fits" in ran.stdout, ran
    options = ("--gpu", "t4", "--memory", "900MiB")
    for batch, code in ((everything, 0), (everything + 1000, 2), (nothing, 2), (nothing + 1000, 1)):
        assert plimsoll.predict(PYTHON, "train.py", batch, options=options).code == code, batch


COUNTS_ITS_WEIGHTS = """
import sys, torch
from torch import nn
layer = nn.Linear(2048, 2048)
wide = int((layer.weight > 0).sum())
layer = layer.cuda()
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    x = torch.randn(int(sys.argv[1]), 2048, device="cuda")
    more = torch.empty(wide * 64, dtype=torch.uint8, device="cuda")
    layer(x).pow(2).mean().backward()
    optimizer.step()
"""


@pytest.mark.soak
def test_where_values_of_weights_decide_sizes_they_are_there(plimsoll):
    """Runs without values are quicker, and so are made first; where that is no answer the search begins again."""
    plimsoll.script(COUNTS_ITS_WEIGHTS)
    path = plimsoll.folder / "found.json"
    limits = ["--gpu", "t4", "--budget", "1GiB", "--json", path]
    ran = plimsoll.run("fit", *limits, "--find-max", "batch=1000..40000:1000", "--", PYTHON, "train.py", "{batch}")
    found = json.loads(path.read_text())["found"]["batch"]
    assert (os.cpu_count() == 1) or "change what the script asks for: searching again, with values" in ran.stderr, ran
    for batch, code in ((found, 0), (found + 1000, 1)):
        assert plimsoll.predict(PYTHON, "train.py", batch, options=("--gpu", "t4", "--memory", "1GiB")).code == code, ran


NEEDS_A_PORT = """
import socket, sys, time, torch
from torch import nn
with socket.create_server(("127.0.0.1", PORT)) as mine:
    layer = nn.Linear(2048, 2048).cuda()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        layer(torch.randn(int(sys.argv[1]), 2048, device="cuda")).pow(2).mean().backward()
        optimizer.step()
        time.sleep(0.2)
"""


@pytest.mark.soak
def test_runs_that_are_in_each_others_way_are_made_one_at_a_time(plimsoll):
    """Two processes cannot listen on one port, as a training with `MASTER_PORT` does; and one error is no other run's fault."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    plimsoll.script(NEEDS_A_PORT.replace("PORT", str(port)))
    path = plimsoll.folder / "found.json"
    limits = ["--gpu", "t4", "--budget", "1GiB", "--json", path]
    ran = plimsoll.run("fit", *limits, "--find-max", "batch=1000..40000:1000", "--", PYTHON, "train.py", "{batch}")
    answer = json.loads(path.read_text())
    assert ran.code == 0 and {it["outcome"] for it in answer["tried"]} == {"fits", "out_of_memory"}, ran
    ran = plimsoll.run("fit", *limits, "--force", "--", PYTHON, "train.py", answer["next"]["value"])
    assert ran.code == 0 and "in use" not in ran.stdout + ran.stderr, ran
    plimsoll.script("import torch\nraise RuntimeError('a mistake')\n")
    ran = plimsoll.run("fit", *limits, "--force", "--", PYTHON, "train.py")
    assert ran.code == 2 and "a mistake" in ran.stderr, ran


FAILS_LATER = """
import torch
from torch import nn
model = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(8)]).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(6):
    model(torch.randn(8192, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 4:
        raise KeyError("labels")
"""


@pytest.mark.soak
def test_a_script_that_fails_in_a_later_step_is_said_to(plimsoll):
    plimsoll.script(FAILS_LATER)
    path = plimsoll.folder / "found.json"
    limits = ["--gpu", "t4", "--budget", "700MiB", "--allow", "checkpoint", "--json", path]
    ran = plimsoll.run("fit", *limits, "--", PYTHON, "train.py")
    answer = json.loads(path.read_text())
    assert ran.code == 2 and answer["plans"] and answer["outcome"] == "script_failed", ran
    said = r"! the script raised KeyError: 'labels' at \S*train.py:11, after 5 optimizer steps; later parts of the script were not run"
    assert re.search(said, ran.stdout) and not answer["seen"]["failed"]["epochs_cut"], ran


def test_ctrl_c_keeps_the_best_so_far(plimsoll):
    plimsoll.script(DEEP)
    options = ["--gpu", "t4", "--budget", "1050MiB", "--forbid", "micro-batches,offload"]
    # A session of its own, so that the signal reaches the whole group as a terminal's would.
    process = plimsoll.start("fit", *options, "--", COLD, "train.py", start_new_session=True)
    assert any(": fits, " in line for line in iter(process.stderr.readline, ""))
    os.killpg(process.pid, signal.SIGINT)
    answer, _ = process.communicate(timeout=60)
    assert "the search was interrupted; a better plan may exist" in answer
    assert answer.lstrip().startswith("FITS SO FAR with a plan: ") and process.returncode == 2, answer
    assert "[[remedy]]" in (plimsoll.folder / "plan.toml").read_text()
    plimsoll.assert_nothing_left()


@pytest.mark.soak
def test_ctrl_c_while_packages_are_still_imported(plimsoll):
    packages = plimsoll.folder / "site-packages"
    packages.mkdir()
    (packages / "slow.py").write_text("import os, time\nopen(os.environ['MARKS'] + '/importing', 'w').close()\ntime.sleep(600)\n")
    plimsoll.script("import slow\n" + DEEP)
    marks, environment = written_through(plimsoll)
    command = ["fit", "--gpu", "t4", "--through", marks, "--", COLD, "train.py"]
    process = plimsoll.start(*command, environment=environment | {"PYTHONPATH": str(packages)})
    while not (marks / "importing").exists():
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 2
    plimsoll.assert_nothing_left()


@pytest.mark.soak
def test_ctrl_c_before_anything_was_found(plimsoll):
    plimsoll.script(DEEP)
    options = ["--gpu", "t4", "--budget", "1050MiB", "--allow", "micro-batches"]
    process = plimsoll.start("fit", *options, "--", COLD, "train.py", start_new_session=True)
    assert any("to be safe" in line for line in iter(process.stderr.readline, ""))
    os.killpg(process.pid, signal.SIGINT)
    answer, _ = process.communicate(timeout=60)
    assert process.returncode == 2 and "INTERRUPTED before a plan that fits was found" in answer
    assert "DOES NOT FIT" not in answer and not (plimsoll.folder / "plan.toml").exists()


BESIDE = """
import ctypes, os, sys, time
note = open(os.environ["MARKS"] + "/runs", "a", buffering=1)
made = os.open("made", os.O_CREAT | os.O_EXCL | os.O_WRONLY, dir_fd=GIVEN)
os.write(made, open("/proc/self/fd/READ", "r+").read().encode())
os.truncate("/proc/self/fd/READ", 0)
# A segment of shared memory that is to be new (IPC_CREAT, IPC_EXCL).
print("new" if ctypes.CDLL(None).shmget(0x706C666B, 4096, 0o3600) >= 0 else "old", os.stat("given/made").st_size, file=note)
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    print("left", os.getpid(), file=note)
    time.sleep(600)
"""


def test_each_run_has_what_it_was_given_for_itself_and_leaves_nobody(plimsoll):
    """Folders and files that are open when plimsoll starts, the kernel's objects, and daemons when it is killed: in runs of a
    process of their own, and in the nursery's."""
    given = plimsoll.folder / "given"
    given.mkdir()
    (plimsoll.folder / "read").write_text("something")
    folder, file = os.open(given, os.O_RDONLY), os.open(plimsoll.folder / "read", os.O_RDONLY)
    plimsoll.script(BESIDE.replace("GIVEN", str(folder)).replace("READ", str(file)) + MLP)
    options = ["--gpu", "t4", "--budget", "874MiB", "--find-max", "batch=1..1000000"]
    marks, environment = written_through(plimsoll)
    command = ["fit", *options, "--through", marks, "--", COLD, "train.py", "{batch}"]
    process = plimsoll.start(*command, environment=environment, pass_fds=[folder, file])
    told = marks / "runs"

    def lines(word):
        return [it for it in told.read_text().splitlines() if it.startswith(word)] if told.exists() else []

    def lives(pid):
        try:
            return open(f"/proc/{pid}/stat").read().rsplit(")")[1].split()[0] not in "ZX"
        except OSError:
            return False

    for _ in range(3000):
        if len(lines("left")) >= 3 or process.poll() is not None:
            break
        time.sleep(0.1)
    process.kill()
    _, errors = process.communicate(timeout=60)
    pids = [it.split()[1] for it in lines("left")]
    assert len(pids) >= 3, (told.read_text() if told.exists() else "", errors)
    for _ in range(200):
        if not any(map(lives, pids)):
            break
        time.sleep(0.01)
    assert not any(map(lives, pids))
    assert set(lines("new") + lines("old")) == {"new 9"}, told.read_text()
    assert not list(given.iterdir()) and (plimsoll.folder / "read").read_text() == "something"
    libc = ctypes.CDLL(None)
    left = libc.shmget(0x706C666B, 0, 0)
    # Of a traced run nobody is there any more to remove it.
    assert left < 0 or (os.environ.get("PLIMSOLL_WRITES_WAY") == "traced" and libc.shmctl(left, 0, None) == 0)


VALIDATES_LATE = """
import torch
from torch import nn
model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(6))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(40):
    optimizer.zero_grad()
    model(torch.randn(1000, 1024, device="cuda")).mean().backward()
    optimizer.step()
model.eval()
print(model(torch.randn(60_000, 1024, device="cuda")).mean().item())
"""


VALIDATES = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(6))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
training = DataLoader(TensorDataset(torch.zeros(40_000, 1024)), batch_size=1000)
validation = DataLoader(TensorDataset(torch.zeros(60_000, 1024)), batch_size=60_000)
for epoch in range(3):
    model.train()
    for (x,) in training:
        optimizer.zero_grad()
        model(x.cuda()).mean().backward()
        optimizer.step()
    model.eval()
    for (x,) in validation:
        out = model(x.cuda())
    torch.save(model.state_dict(), "model.pt")
    del out
"""


@pytest.mark.soak
def test_a_validation_after_the_epoch_is_seen_and_planned_for(plimsoll):
    """An epoch of forty steps, of which a few are run."""
    plimsoll.script(VALIDATES)
    path = plimsoll.folder / "fit.json"
    options = ["--gpu", "t4", "--budget", "1550MiB", "--forbid", "offload", "--json", path]
    ran = plimsoll.run("fit", *options, "--", PYTHON, "train.py", timeout=900)
    assert ran.code == 0, ran
    answer = json.loads(path.read_text())
    assert answer["outcome"] == "fits_with_plan" and answer["plans"][0]["remedies"] == ["no-grad-evaluation"]
    assert answer["seen"]["evaluation"] and answer["seen"]["steps"] < 40
    assert answer["as_it_is"]["needs_bytes"] > 1700 << 20 >= answer["plans"][0]["needs_bytes"]


@pytest.mark.soak
@pytest.mark.parametrize("asked", [pytest.param((), marks=pytest.mark.soak), ("--until-exit",)])
def test_what_comes_late_is_seen(plimsoll, asked):
    """By default, too: 40 steps are soon over, and the script speaks of an evaluation."""
    plimsoll.script(VALIDATES_LATE)
    options = ["fit", "--gpu", "t4", "--budget", "1GiB", "--allow", "checkpoint", *asked]
    ran = plimsoll.run(*options, "--", PYTHON, "train.py", timeout=900)
    assert ran.code == 1, ran


def test_a_script_that_does_not_begin_is_said_as_predict_says_it(plimsoll):
    plimsoll.run("fit", "--gpu", "t4", "--", PYTHON, "nosuch.py").assert_sentence("nosuch.py does not exist", "looked in")
    plimsoll.script("import argparse, torch\nargparse.ArgumentParser().parse_args()")
    wrong = plimsoll.run("fit", "--gpu", "t4", "--", PYTHON, "train.py", "--batch", "8")
    wrong.assert_sentence("exited with code 2", "unrecognized arguments: --batch 8")


def test_run_passes_the_exit_code_on(plimsoll):
    assert plimsoll.run("run", "--no-gpu", "--", "sh", "-c", "exit 7").code == 7
    assert plimsoll.run("run", "--no-gpu", "--", "sh", "-c", "kill -TERM $$").code == 143


def test_run_refuses_a_plan_that_it_cannot_read(plimsoll):
    (plimsoll.folder / "plan.toml").write_text("version = 9\n")
    plimsoll.run("run", "--no-gpu", "--plan", "plan.toml", "--", "true").assert_sentence("plan.toml", "version is 9")


@pytest.mark.soak
def test_the_largest_number_in_the_script_itself(plimsoll):
    """By its name and by its line; the user's file stays as it is."""
    text = MLP.replace("int(sys.argv[1])", "4096")
    plimsoll.script(text)
    path, found = plimsoll.folder / "found.json", []
    for place in ("batch", "train.py:4"):
        options = ["--gpu", "t4", "--budget", "874MiB", "--json", path]
        ran = plimsoll.run("fit", "--find-max", f"{place}=1..1000000:512", *options, "--", PYTHON, "train.py")
        assert ran.code == 0, ran
        found.append(json.loads(path.read_text())["found"][place])
    assert found[0] == found[1] > 4096
    assert (plimsoll.folder / "train.py").read_text() == text
    ran = plimsoll.run("fit", "--find-max", "train.py:5=1..64", "--gpu", "t4", "--", PYTHON, "train.py")
    assert ran.code == 2 and "several numbers; write one of train.py:5:" in ran.stderr
    ran = plimsoll.run("fit", "--find-max", "nothing=1..64", "--gpu", "t4", "--", PYTHON, "train.py")
    assert ran.code == 2 and "the command has no {nothing}" in ran.stderr


@pytest.mark.soak
def test_a_package_may_ask_for_a_device_and_other_processes_end_without_training(plimsoll):
    """Runs are forked from a process that has imported the package; what a process of the script's own does not train is no news."""
    package = plimsoll.folder / "site-packages" / "asks"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import torch\n\nhas_device = torch.cuda.is_available()\n")
    ends = "\nimport subprocess\nsubprocess.run([sys.executable, '-c', 'import torch'], check=True)\n"
    plimsoll.script("import asks\nassert asks.has_device\n" + MLP + ends)
    options = ["--gpu", "t4", "--budget", "874MiB", "--allow", "micro-batches", "--json", "it.json"]
    ran = plimsoll.run("fit", *options, "--", PYTHON, "train.py", "8192", environment=plimsoll.environment(PYTHONPATH=str(package.parent)))
    assert ran.code == 0, ran
    assert "nothing is trained" not in ran.stderr
    assert json.loads((plimsoll.folder / "it.json").read_text())["plans"][0]["remedies"][0].startswith("micro-batches")


def test_a_script_that_gets_through_by_giving_its_cache_back_is_said_to(plimsoll):
    """Batches of three sizes: what the allocator keeps of the smaller ones serves none of the larger."""
    plimsoll.script(
        """
import torch, torch.nn as nn
net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
for i in range(30):
    opt.zero_grad()
    net(torch.randn(200_000 + 90_000 * (i % 3), 256, device="cuda")).sum().backward()
    opt.step()
"""
    )
    ran = plimsoll.run("predict", "--gpu", "t4", "--json", "it.json", "-q", "--", PYTHON, "train.py")
    told = json.loads((plimsoll.folder / "it.json").read_text())
    allocated, reserved = told["peak_allocated_bytes"], told["peak_reserved_bytes"]
    assert ran.code == 0 and 1.3 * allocated < reserved, (allocated, reserved)
    limit = int(reserved * 0.8)
    ran = plimsoll.run("fit", "--gpu", "t4", "--limit-reserved", f"{limit}B", "--allow", "autocast", "--json", "it.json", "--", PYTHON, "train.py")
    found = json.loads((plimsoll.folder / "it.json").read_text())
    assert ran.code == 0 and found["as_it_is"]["needs_bytes"] > limit, ran
    assert found["as_it_is_retries"] > 0 and "on a real card, the card was full" in ran.stdout, ran


@pytest.mark.soak
def test_a_script_that_grows_is_told_what_stays_and_what_lint_finds_there(plimsoll):
    plimsoll.script(
        "import torch\nfrom torch import nn\n"
        "net = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(4)]).cuda()\nopt = torch.optim.SGD(net.parameters(), 0.1)\nlosses = []\n"
        "for step in range(20000):\n    loss = net(torch.randn(4096, 1024, device='cuda')).square().mean()\n"
        "    opt.zero_grad(); loss.backward(); opt.step()\n    losses.append(net(torch.randn(4096, 1024, device='cuda')))\n"
    )
    ran = plimsoll.run("fit", "--gpu", "t4", "--", PYTHON, "train.py")
    text = " ".join(ran.stdout.split())
    assert ran.stdout.startswith("GROWS") and "steps leave their autograd graph allocated" in text and "`plimsoll lint` at line 9: `losses` keeps the autograd graph" in text, ran
