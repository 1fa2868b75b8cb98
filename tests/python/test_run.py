"""`plimsoll run`, `plimsoll.fit` and `plimsoll.record` with a phantom in the place of the machine's GPU."""

import json
import os
import re
import shutil
import signal
import subprocess
import zipfile

import pytest
from described import assert_described
from harness import COLD, PYTHON, Plimsoll, binary

DEEP = """
import sys, torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(256, 1024), nn.Linear(1024, 256)
    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))

def train(batch):
    model = nn.Sequential(*(Block() for _ in range(4))).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(8):
        optimizer.zero_grad()
        model(torch.randn(batch, 256, device="cuda")).pow(2).mean().backward()
        optimizer.step()
    return torch.cuda.max_memory_reserved()
"""
SCRIPT = DEEP + "train(int(sys.argv[1]))\n"
ONLY_CHECKPOINTS = ["--allow", "checkpoint", "--keep-numerics"]


@pytest.fixture
def run(program, cache):
    """`plimsoll run` on a card of so much memory."""

    def run(*words, memory="4GiB"):
        environment = program.on_a_device("--gpu", "t4", "--memory", memory)
        return Plimsoll(program.folder, cache).run("run", *words, environment=environment)

    program.folder.joinpath("train.py").write_text(SCRIPT)
    return run


def test_a_run_is_recorded_measured_and_reported(run, program):
    ran = run("--record", "run.zip", "--measure", "--json", "run.json", "--", PYTHON, "train.py", 512)
    assert ran.code == 0 and len(ran.sentences) == 1 and ran.sentences[0].startswith("a step takes 0.0"), ran
    report = json.loads(program.folder.joinpath("run.json").read_text())
    assert_described("run", report)
    assert report["exit_code"] == 0 and report["recordings"] == ["run.zip"] and not report["out_of_memory"]
    (process,) = report["processes"]
    # Eight steps: three are left out.
    assert process["steps"] == 8 and process["step_seconds"]["count"] == process["step_seconds_host"]["count"] == 5
    names = zipfile.ZipFile(program.folder / "run.zip").namelist()
    assert f"process-{process['pid']}/snapshot.pickle" in names


def test_recording_changes_nothing(run, program):
    """Same memory to the byte; same random numbers and same weights, where arithmetic is real."""
    tail = """
print(torch.cuda.memory_stats()["allocated_bytes.all.allocated"], torch.cuda.max_memory_reserved())
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 16), nn.Dropout(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(20):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 16)).pow(2).mean()
    loss.backward()
    optimizer.step()
print(loss.item().hex(), sum(it.double().sum() for it in model.parameters()).item().hex(), torch.rand(4))
"""
    program.folder.joinpath("train.py").write_text(SCRIPT + tail)
    alone = program.start(PYTHON, "train.py", 512, environment=program.on_a_device("--gpu", "t4", "--memory", "4GiB"))
    assert alone.returncode == 0 and alone.stdout.count("\n") == 2, alone
    assert run("--record", "run.zip", "--", PYTHON, "train.py", 512).stdout == alone.stdout


def test_memory_that_runs_out_is_explained_on_the_spot(run, program):
    ran = run("--", PYTHON, "train.py", 65536, memory="1GiB")
    assert ran.code == 1
    assert ran.sentences[0].startswith("ran out of GPU memory in step 1, forward at "), ran
    assert "It ran out in step 1, forward, at train.py:" in ran.stderr and "What to change" in ran.stderr
    assert ran.sentences[-1].startswith("saved the recording as plimsoll-oom.zip")
    first = program.folder / "plimsoll-oom.zip"
    before = first.read_bytes()
    # The next one does not replace it.
    assert "plimsoll-oom-2.zip" in run("--", PYTHON, "train.py", 65536, memory="1GiB").sentences[-1]
    assert first.read_bytes() == before


def test_a_process_beside_it_without_a_gpu_is_not_explained(run, program):
    """A compiler's workers import torch, initialise CUDA and allocate nothing."""
    program.folder.joinpath("train.py").write_text(
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import torch; torch.cuda.init()'], check=True)\n" + SCRIPT
    )
    ran = run("--", PYTHON, "train.py", 65536, memory="1GiB")
    assert ran.code == 1 and "What to change" in ran.stderr, ran
    assert "COULD NOT TELL" not in ran.stderr and "2 inputs" not in ran.stderr, ran


def test_one_that_the_script_survives_is_said_once_and_not_kept(run, program):
    program.folder.joinpath("train.py").write_text(
        DEEP + "for batch in (100_000, 512):\n    try:\n        train(batch)\n    except torch.OutOfMemoryError:\n        pass\n"
    )
    ran = run("--", PYTHON, "train.py", memory="1GiB")
    assert ran.code == 0 and len(ran.sentences) == 1, ran
    assert re.match(r"memory ran out in step 1 at .*train\.py:\d+, asked for .*; the script went on", ran.sentences[0]), ran
    assert not program.folder.joinpath("plimsoll-oom.zip").exists()


@pytest.mark.soak
def test_fit_plans_for_what_is_free_and_the_plan_is_checked_at_the_first_step(run, program):
    """A plan for the device as it is, kept; with it the run is as predicted, and another batch is noticed."""
    ran = run("--fit", *ONLY_CHECKPOINTS, "--plan", "plan.toml", "--", PYTHON, "train.py", 32768, memory="1450MiB")
    assert ran.code == 0, ran
    assert "of 1.42 GiB of Tesla T4 are free; planning for that" in ran.sentences[0], ran
    assert ran.sentences[-1].startswith("running with ") and "checkpoint" in ran.sentences[-1], ran
    plan = program.folder.joinpath("plan.toml").read_text()
    assert 'inputs = ["args[0] 32768x256 float32"]' in plan and 'gpu = "Tesla T4"' in plan
    # The same again, with more memory: nothing to say.
    assert run("--plan", "plan.toml", "--", PYTHON, "train.py", 32768).sentences == []
    (sentence,) = run("--plan", "plan.toml", "--", PYTHON, "train.py", 65536).sentences
    assert sentence.startswith("the first step reserved ") and " more than the " in sentence
    assert "the batch differs (args[0] 65536x256 float32; the plan was made with args[0] 32768x256 float32)" in sentence


@pytest.mark.parametrize("visible, sentences", [(None, 1), ("1", 0)])
def test_a_machine_with_more_gpus_than_the_plan_is_for_is_told(program, cache, visible, sentences):
    program.folder.joinpath("train.py").write_text("print('trains')")
    program.folder.joinpath("plan.toml").write_text("version = 1\n\n[[remedy]]\nid = 'tf32'\n")
    environment = program.on_a_device("--gpu", "t4", "--gpus", "2")
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    ran = Plimsoll(program.folder, cache).run("run", "--plan", "plan.toml", "--", PYTHON, "train.py", environment=environment)
    assert ran.code == 0 and ran.stdout == "trains\n" and len(ran.sentences) == sentences, ran
    if sentences:
        assert ran.sentences[0].startswith("the plan is for 1 GPU, and the script sees 2"), ran


def test_fit_runs_a_script_that_fits_as_it_is(run):
    ran = run("--fit", "--", PYTHON, "train.py", 512)
    assert ran.code == 0 and ran.sentences[-1] == "it fits without changes", ran


SPARSE = """
import sys, torch
from torch import nn
head = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 64)).cuda()
optimizer = torch.optim.Adam(head.parameters())
for _ in range(4):
    x = torch.randn(int(sys.argv[1]), 512, device="cuda")
    sure = torch.sigmoid(x @ torch.randn(512, device="cuda")) > 0.7
    head(x[sure]).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("trained")
"""


def test_fit_goes_on_where_it_depends_on_masks(run, program):
    """How many samples a mask finds is known on the real device alone: the run is started, and what it depends on is said."""
    program.folder.joinpath("train.py").write_text(SPARSE)
    ran = run("--fit", "--allow", "micro-batches", "--plan", "plan.toml", "--", PYTHON, "train.py", 100_000, memory="900MiB")
    assert "if boolean masks select everything, it runs out of memory" in ran.stderr, ran
    assert ran.code == 0 and "trained" in ran.stdout and "it fits without changes" in ran.sentences[-1], ran
    head = "# That is with boolean masks that select nothing; if they select everything, it runs out of memory."
    assert head in program.folder.joinpath("plan.toml").read_text()


STAGES = (
    DEEP.replace("    for _ in range(8):", "    for times in (1, 2, 4):\n     for _ in range(400):").replace("torch.randn(batch, ", "torch.randn(batch * times, ")
    + "train(int(sys.argv[1]))\nprint('trained')\n"
)


@pytest.mark.soak
def test_fit_goes_on_where_the_search_did_not_come_to_all_of_the_script(run, program):
    """The real run comes to it, and is watched: it is started, after the report that says what was not seen."""
    program.folder.joinpath("train.py").write_text(STAGES)
    ran = run("--fit", "--plan", "plan.toml", "--", PYTHON, "train.py", 2)
    assert "FITS SO FAR" in ran.stderr and "was seen in turn 1 of 3 only" in " ".join(ran.stderr.split()), ran
    assert ran.code == 0 and "trained" in ran.stdout and ran.sentences[-1] == "it fits without changes", ran
    with_a_plan = run("--fit", *ONLY_CHECKPOINTS, "--plan", "plan.toml", "--", PYTHON, "train.py", 32768, memory="1450MiB")
    assert "FITS SO FAR with a plan" in with_a_plan.stderr and "running with checkpoint" in " ".join(with_a_plan.sentences), with_a_plan
    # What was not seen needs more, and the run that comes to it says so.
    assert with_a_plan.code == 1 and any(it.startswith("ran out of GPU memory in step 401") for it in with_a_plan.sentences), with_a_plan


@pytest.mark.soak
def test_fit_starts_nothing_when_no_plan_fits(run, program):
    program.folder.joinpath("train.py").write_text(SCRIPT + "open('trained', 'w')\n")
    ran = run("--fit", "--allow", "foreach", "--", PYTHON, "train.py", 32768, memory="700MiB")
    assert ran.code == 1 and "DOES NOT FIT" in ran.stderr, ran


RANKS = """
import os, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
model = nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(64, 256, device="cuda")).sum().backward()
    optimizer.step()
dist.barrier()
os.write(1, b"rank %d of %d\\n" % (dist.get_rank(), dist.get_world_size()))  # Whole lines: both ranks write here.
dist.destroy_process_group()
"""


@pytest.mark.parametrize("outside", [True, False], ids=["run torchrun", "torchrun run"])
def test_every_rank_of_torchrun_has_a_recording(program, cache, outside):
    plimsoll = Plimsoll(program.folder, cache)
    plimsoll.script(RANKS)
    launcher = [PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    record = ["run", "--record", "run.zip", "--"]
    environment = program.on_a_device("--gpu", "t4")
    if outside:
        ran = plimsoll.run(*record, *launcher, "train.py", environment=environment)
        assert ran.code == 0, ran
        output = ran.stdout
    else:
        words = [*launcher, "--no-python", environment["PLIMSOLL_BIN"], *record, PYTHON, "train.py"]
        ran = program.start(*words, environment=environment)
        assert ran.returncode == 0, ran
        output = ran.stdout
    # Both are there: none is imagined.
    # Gloo of torch 2.8 says something, too, perhaps on the same line.
    assert sorted(re.findall("rank . of 2", output)) == ["rank 0 of 2", "rank 1 of 2"]
    assert sorted(it.name for it in program.folder.glob("*.zip")) == ["run-rank0.zip", "run-rank1.zip"]
    for rank in (0, 1):
        ran = plimsoll.run("explain", f"run-rank{rank}.zip", "--json", "found.json")
        assert json.loads(program.folder.joinpath("found.json").read_text())["rank"] == rank, ran


def test_signals_of_job_schedulers_reach_the_script(program, cache):
    plimsoll = Plimsoll(program.folder, cache)
    plimsoll.script(
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b'saving\\n'))\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('ready', flush=True)\nwhile True: time.sleep(0.05)\n"
    )
    process = plimsoll.start("run", "--no-gpu", "--", PYTHON, "train.py")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == "saving\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 7


def test_inside_predict_it_steps_aside(plimsoll):
    plimsoll.script(SCRIPT)
    ran = plimsoll.predict("sh", "-c", f"$PLIMSOLL_OWN run -- {PYTHON} train.py 512", options=("--gpu", "t4"),
                           environment=plimsoll.environment(PLIMSOLL_OWN=binary()))
    assert ran.code == 0 and ran.report["steps_seen"] >= 3, ran


def test_a_torch_that_is_not_known_is_not_recorded_and_trains(program, cache):
    plimsoll = Plimsoll(program.folder, cache)
    package = program.folder / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("print('torch is imported')\n")
    (package / "version.py").write_text("__version__ = '1.4.0'\ncuda = '10.1'\n")
    plimsoll.script("import torch\nprint('trained')\n")
    ran = plimsoll.run("run", "--no-gpu", "--", PYTHON, "train.py")
    assert ran.code == 0 and ran.stdout == "torch is imported\ntrained\n", ran
    assert len(ran.sentences) == 1 and ran.sentences[0].startswith("no recording, and no plan was applied: "), ran
    (program.folder / "plan.toml").write_text("version = 1\n[[remedy]]\nid = 'fused'\n")
    assert plimsoll.run("run", "--no-gpu", "--plan", "plan.toml", "--", PYTHON, "train.py").code == 86


FITTED = DEEP + """
import plimsoll

@plimsoll.fit(gpu="t4", memory="1150MiB", plan="plan.toml", allow=["checkpoint"])
def fitted(batch):
    return train(batch), __name__

if __name__ == "__main__":
    print(fitted(32768))
"""


def test_a_decorated_function_runs_with_its_plan_and_returns(program):
    environment = program.on_a_device("--gpu", "t4", "--memory", "4GiB")
    ran = program.run(FITTED, environment=environment)
    assert ran.returncode == 0, ran
    reserved, name = eval(ran.stdout.splitlines()[-1])
    assert reserved < 1300 << 20 and name == "__plimsoll_main__"
    assert "checkpoint" in program.folder.joinpath("plan.toml").read_text()


RECORD = DEEP + """
import plimsoll
try:
    with plimsoll.record("run.zip"):
        train(int(sys.argv[1]))
except torch.OutOfMemoryError:
    print("ran out")
torch.zeros(1, device="cuda")
with plimsoll.record("after.zip"):
    train(64)
"""


@pytest.mark.parametrize("batch", [512, 100_000])
def test_a_block_is_recorded(program, plimsoll, batch):
    program.folder.joinpath("run.zip.part").write_text("half of a download")
    ran = program.run(RECORD, batch, environment=program.on_a_device("--gpu", "t4", "--memory", "1GiB"))
    assert ran.returncode == 0 and not ran.stderr, ran
    assert program.folder.joinpath("run.zip.part").read_text() == "half of a download"
    assert not list(program.folder.glob(".run.zip*"))
    said = Plimsoll(program.folder, program._cache).run("explain", "run.zip", "--json", "found.json")
    found = json.loads(program.folder.joinpath("found.json").read_text())
    if batch == 512:
        assert found["steps"] == 8 and found["oom"] is None, said
        assert any(it["code"] == "peak/composition" and "parameters" in str(it) for it in found["findings"])
    else:
        assert ran.stdout == "ran out\n"
        assert found["oom"] is not None and "train.py" in json.dumps(found["oom"]), said
    Plimsoll(program.folder, program._cache).run("explain", "after.zip", "--json", "found.json")
    after = json.loads(program.folder.joinpath("found.json").read_text())
    assert after["oom"] is None and after["steps"] == (16 if batch == 512 else 8)


def test_training_writes_over_its_own_checkpoint(run, program):
    """What a run on the phantom leaves alone, training replaces, measured or not."""
    program.folder.joinpath("train.py").write_text(
        "import torch\nnet = torch.nn.Linear(8, 8).cuda()\noptimizer = torch.optim.SGD(net.parameters(), 0.1)\n"
        "for _ in range(3):\n    net(torch.randn(4, 8).cuda()).sum().backward()\n    optimizer.step()\n"
        "    torch.save(net.state_dict(), 'trained.pt')\n"
    )
    checkpoint = program.folder / "trained.pt"
    for options in (["--measure"], []):
        checkpoint.write_bytes(b"of yesterday")
        ran = run(*options, "--", PYTHON, "train.py")
        assert ran.code == 0 and 100 < checkpoint.stat().st_size, ran


@pytest.mark.soak
def test_fit_measures_what_it_proposes_and_the_script_as_it_is(program, cache):
    environment = program.on_a_device("--gpu", "t4", "--memory", "4GiB")
    program.folder.joinpath("train.py").write_text(SCRIPT)
    words = ["fit", "--budget", "1250MiB", "--gpu", "t4", *ONLY_CHECKPOINTS, "--measure"]
    ran = Plimsoll(program.folder, cache).run(*words, "--json", "fit.json", "--", PYTHON, "train.py", 32768, environment=environment)
    assert ran.code == 0, ran
    found = json.loads(program.folder.joinpath("fit.json").read_text())
    assert found["outcome"] == "fits_with_plan" and found["measured_on"] == "Tesla T4"
    plain = found["as_it_is"]["measured"]
    assert plain["time_factor"] == 1.0 and 0 < plain["step_seconds"]
    for it in found["plans"]:
        of_plan = it["measured"]["step_seconds"]
        assert it["measured"]["time_factor"] == pytest.approx(of_plan / plain["step_seconds"])
        assert it["measured"]["step_seconds_range"][0] <= of_plan <= it["measured"]["step_seconds_range"][1]
    # Everything twice, and said while it is done.
    said = [it for it in ran.stderr.splitlines() if "on the device: " in it]
    assert len(said) == 2 * (1 + len(found["plans"])), ran
    assert "Measured on Tesla T4; without changes, a step takes " in ran.stdout and "x measured" in ran.stdout
    assert "(measured)" in program.folder.joinpath("plan.toml").read_text()


@pytest.mark.soak
def test_fit_measures_no_more_than_fits_on_the_device(program, cache):
    """No trial ends out of memory: what does not fit is not started."""
    environment = program.on_a_device("--gpu", "t4", "--memory", "1450MiB")
    program.folder.joinpath("train.py").write_text(SCRIPT)
    words = ["fit", "--gpu", "t4", "--budget", "1250MiB", *ONLY_CHECKPOINTS, "--measure", "--", PYTHON, "train.py", 32768]
    ran = Plimsoll(program.folder, cache).run(*words, environment=environment)
    assert ran.code == 0 and "the script without changes was not measured: it needs more than is free there" in ran.stdout, ran
    assert "not measured: the unchanged script needs " in ran.stderr, ran
    assert "the unchanged script, on the device" not in ran.stderr and "checkpoint (1 block), on the device: " in ran.stderr, ran


def test_fit_measures_nothing_without_a_device(plimsoll):
    plimsoll.script(SCRIPT)
    ran = plimsoll.run("fit", "--gpu", "t4", "--measure", "--", PYTHON, "train.py", 512)
    assert ran.code == 2 and "--measure runs steps on this machine's own GPU, and none was found" in ran.stderr, ran
    assert "the unchanged script" not in ran.stderr


LONG_BATCH = DEEP.split("def train")[0] + """
import os
torch.manual_seed(0)
model = nn.Sequential(*(Block() for _ in range(4))).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(6):
    optimizer.zero_grad()
    loss = model(torch.randn(60_000 if step == 3 else 4_000, 256, device="cuda")).pow(2).mean()
    loss.backward()
    optimizer.step()
print("trained")
"""


@pytest.mark.parametrize("phase, memory", [("forward", "1500MiB"), ("backward", "2GiB")])
def test_a_long_batch_is_survived(run, program, phase, memory):
    """60,000 rows keep four blocks' activations, 2.2 GB; one block alone fits."""
    program.folder.joinpath("train.py").write_text(LONG_BATCH)
    assert run("--", PYTHON, "train.py", memory=memory).code == 1
    ran = run("--survive", "--json", "run.json", "--", PYTHON, "train.py", memory=memory)
    assert ran.code == 0 and ran.stdout == "trained\n", ran
    first, total = ran.sentences
    expected = (
        rf"memory ran out in step 4, {phase} at .*train\.py:\d+ \(asked for [\d.]+ MiB\); repeated in [\d.]+ s, with "
        "saved activations in host memory; the numbers are the same"
    )
    assert re.fullmatch(expected, first), ran
    assert total.startswith("memory ran out once and training went on; "), ran
    (process,) = json.loads(program.folder.joinpath("run.json").read_text())["processes"]
    (redone,) = process["redone"]
    assert process["steps"] == 6 and redone["step"] == 4 and redone["phase"] == phase and redone["way"] == "host"


@pytest.mark.parametrize("memory", ["1100MiB", "1500MiB"])
def test_what_could_not_be_done_again_is_explained_as_it_first_was(run, program, memory):
    """With batch-norm there are no parts, and a layer of 60,000 rows is too large with all else on the host: doing it again runs out elsewhere."""
    model = "nn.Sequential(nn.BatchNorm1d(256), Block(), Block(), Wide(), Block()).cuda()"
    wide = LONG_BATCH.replace("nn.Sequential(*(Block() for _ in range(4))).cuda()", model)
    layer = (
        "class Wide(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.a, self.b = nn.Linear(256, 4096), nn.Linear(4096, 256)\n"
        "    def forward(self, x):\n"
        "        return self.b(self.a(x).relu())\n"
    )
    program.folder.joinpath("train.py").write_text(wide.replace("import os\n", "import os\n" + layer, 1))
    found = []
    for options in [], ["--survive"]:
        ran = run(*options, "--record", "run.zip", "--", PYTHON, "train.py", memory=memory)
        assert ran.code == 1, ran
        Plimsoll(program.folder, program._cache).run("explain", "run.zip", "--json", "found.json")
        oom = json.loads(program.folder.joinpath("found.json").read_text())["oom"]
        found.append({name: oom[name] for name in ("step", "phase", "at", "requested_bytes")})
        # The numbers of the error that the script got.
        (allocated,) = re.findall(r"Of the allocated memory ([\d.]+ \w+) is allocated", ran.stderr)
        unit = {"MiB": 1 << 20, "GiB": 1 << 30}[allocated.split()[1]]
        assert abs(float(allocated.split()[0]) - oom["allocated_bytes"] / unit) <= 0.01
    assert found[1] == found[0], ran


def test_a_script_that_needs_no_help_trains_as_ever(run, program):
    """What the script computes itself, `pow(2)`, keeps what it saved a little longer: 512 x 256 numbers."""
    program.folder.joinpath("train.py").write_text(DEEP + "train(512)\nprint(torch.cuda.max_memory_allocated())\n")
    alone, beside = run("--", PYTHON, "train.py"), run("--survive", "--", PYTHON, "train.py")
    assert 0 <= int(beside.stdout) - int(alone.stdout) <= 512 * 256 * 4 and beside.sentences == []


KILLED = """
import atexit, os, sys
rank = os.environ.get("RANK", "0")
@atexit.register
def ends():
    # Before torch is imported: after all that is done at the end.
    with open("ended-" + rank, "w") as file:
        file.write("ended")
""" + DEEP + """
def steps(n):
    kept = []
    for _ in range(n):
        optimizer.zero_grad()
        model(torch.randn(64, 256, device="cuda")).pow(2).mean().backward()
        optimizer.step()
        kept.append(torch.zeros(1 << 18, device="cuda"))
model = nn.Sequential(Block()).cuda()
optimizer = torch.optim.Adam(model.parameters())
steps(3)
open("trains-" + rank, "w").close()
open("go-" + rank).read()
steps(150)
print("trained", flush=True)
"""
SOAK = pytest.mark.soak


def said(pipe):
    """What somebody writes into it; nothing when nobody does."""
    return subprocess.run(["timeout", "100", "cat", pipe], capture_output=True, text=True).stdout


def say(pipe):
    subprocess.run(["timeout", "100", "sh", "-c", 'echo on > "$0"', pipe], check=True)


@pytest.mark.parametrize(
    "options",
    [["--watch"], pytest.param([], marks=SOAK), pytest.param(["--survive"], marks=SOAK), pytest.param(["--record", "run.zip"], marks=SOAK)],
    ids=" ".join,
)
def test_training_goes_on_when_plimsoll_is_killed(program, cache, options):
    """And when its session is gone, which the next plimsoll takes away."""
    folder = program.folder
    folder.joinpath("train.py").write_text(KILLED)
    for name in ("trains-0", "go-0", "ended-0"):
        os.mkfifo(folder / name)
    environment = program.on_a_device("--gpu", "t4") | {"PLIMSOLL_RUNNING": str(folder / "running")}
    with open(folder / "output", "w") as output:
        started = Plimsoll(folder, cache).start(
            "run", *options, "--", COLD, "train.py", environment=environment, stdout=output, stderr=output
        )
    said(folder / "trains-0")
    started.kill()
    started.wait()
    for it in (cache / "plimsoll-cache" / "sessions").iterdir():
        shutil.rmtree(it)
    say(folder / "go-0")
    assert said(folder / "ended-0") == "ended"
    assert folder.joinpath("output").read_text() == "trained\n"
    assert not list((cache / "plimsoll-cache" / "sessions").iterdir()) and not list(folder.joinpath("running").iterdir())


@SOAK
def test_each_of_several_processes_goes_on_when_plimsoll_is_killed(program, cache):
    folder = program.folder
    folder.joinpath("plan.toml").write_text('version = 1\n[[remedy]]\nid = "zero1"\ngpus = 2\n')
    folder.joinpath("train.py").write_text(
        "import os, torch\nnet = torch.nn.Linear(4, 2)\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "def step():\n    optimizer.zero_grad(); net(torch.randn(6, 4)).sum().backward(); optimizer.step()\n"
        "rank = str(torch.distributed.get_rank())\nstep()\nopen('trains-' + rank, 'w').close()\nopen('go-' + rank).read()\n"
        "step()\nopen('trained-' + rank, 'w').write('trained')\n"
    )
    for rank in "01":
        for name in ("trains-", "go-", "trained-"):
            os.mkfifo(folder / (name + rank))
    started = Plimsoll(folder, cache).start("run", "--no-gpu", "--plan", "plan.toml", "--", COLD, "train.py")
    for rank in "01":
        said(folder / ("trains-" + rank))
    started.kill()
    started.wait()
    for rank in "01":
        say(folder / ("go-" + rank))
    assert [said(folder / ("trained-" + it)) for it in "01"] == ["trained", "trained"]
