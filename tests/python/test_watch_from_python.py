"""`plimsoll.watch()` inside a program, and the callbacks of trainers, with a phantom in the place of the machine's GPU."""

import http.server
import json
import sys
import threading
import time

import pytest
from described import assert_described
from harness import PYTHON, Plimsoll

MODEL = """
import sys, torch, plimsoll
from torch import nn
model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
kept = []
def step(leaks=True):
    optimizer.zero_grad()
    model(torch.randn(64, 256, device="cuda")).square().mean().backward()
    optimizer.step()
    if leaks:
        kept.append(torch.zeros(1 << 18, device="cuda"))
"""
LINE = next(number for number, it in enumerate(MODEL.splitlines(), start=1) if "kept.append" in it)


@pytest.fixture
def on_a_device(program):
    def on_a_device():
        environment = program.on_a_device("--gpu", "t4", "--memory", "1GiB")
        return environment | {"PLIMSOLL_RUNNING": str(program.folder / "running")}

    return on_a_device


def test_a_plain_loop_is_watched(program, on_a_device):
    text = MODEL + """
told = []
watch = plimsoll.watch(on_alarm=told.append, alarms="alarms.jsonl", label="night")
for _ in range(400):
    step()
found = watch.stop()
assert found == told and len(found) == 1
(alarm,) = found
print(alarm.code, alarm.line, int(alarm.per_step), 180 < alarm.step < 260, alarm.runs_out_at_step > 800)
assert str(alarm) == alarm.text
"""
    ran = program.run(text, environment=on_a_device())
    assert ran.returncode == 0 and ran.stdout == f"watch/growth {LINE} {1 << 20} True True\n", ran
    (alarm,) = [json.loads(it) for it in program.folder.joinpath("alarms.jsonl").read_text().splitlines()]
    assert_described("alarm", alarm)
    assert alarm["label"] == "night" and ran.stderr == f"plimsoll: {alarm['text']}\n"
    assert not list(program.folder.joinpath("running").iterdir())


def test_watching_costs_no_memory_and_changes_no_number(program, on_a_device):
    text = MODEL + """
if sys.argv[1] == "watched":
    plimsoll.watch()
for _ in range(50):
    step(leaks=False)
stats = torch.cuda.memory_stats()
print(stats["allocated_bytes.all.allocated"], stats["reserved_bytes.all.peak"], stats["allocation.all.allocated"])
print(torch.cuda.memory._snapshot()["device_traces"][0] == [])
"""
    alone, watched = (program.run(text, it, environment=on_a_device()) for it in ("alone", "watched"))
    assert alone.returncode == 0 and alone.stdout == watched.stdout and watched.stderr == alone.stderr == "", (alone, watched)


def test_steps_of_a_loop_without_an_optimizer_are_said(program, on_a_device):
    text = MODEL + """
watch = plimsoll.watch(quiet=True)
for _ in range(400):
    for each in (1, 2, 3):
        with torch.no_grad():
            model(torch.randn(64, 256, device="cuda"))
    kept.append(torch.zeros(1 << 18, device="cuda"))
    watch.step()
(alarm,) = watch.stop()
print(alarm.line, int(alarm.per_step))
"""
    line = LINE + 7
    ran = program.run(text, environment=on_a_device())
    assert ran.returncode == 0 and ran.stdout == f"{line} {1 << 20}\n" and not ran.stderr, ran


def test_more_than_a_prediction_said_is_told(program, on_a_device):
    text = MODEL + """
with plimsoll.watch(expected="30MB") as watch:
    for index in range(40):
        step(leaks=False)
        if index == 20:
            model(torch.randn(100_000, 256, device="cuda"))
print([(it.code, it.step) for it in watch.alarms])
for wrong in ("no such file", "train.py"):
    try:
        plimsoll.watch(expected=wrong)
    except plimsoll.PlimsollError as error:
        print(error)
"""
    ran = program.run(text, environment=on_a_device())
    first, *errors = ran.stdout.splitlines()
    assert ran.returncode == 0 and first == "[('watch/over-plan', 22)]", ran
    assert "is neither a file nor a size" in errors[0] and "expected a plan or the JSON of `plimsoll predict`" in errors[1]


def test_a_second_watch_tells_what_is_new(program, on_a_device):
    text = MODEL + """
for label, leaks in (("first", True), ("second", False), ("third", True)):
    kept.clear()
    with plimsoll.watch(label=label, quiet=True, alarms="alarms.jsonl") as watch:
        for _ in range(400):
            step(leaks)
    print(label, [(it.code, it.report["label"]) for it in watch.alarms])
"""
    ran = program.run(text, environment=on_a_device())
    assert ran.stdout.splitlines() == ["first [('watch/growth', 'first')]", "second []", "third [('watch/growth', 'third')]"], ran
    assert len(program.folder.joinpath("alarms.jsonl").read_text().splitlines()) == 2


def test_inside_a_run_that_is_watched_it_listens(program, on_a_device, cache):
    text = MODEL + """
with plimsoll.watch() as watch:
    step(False)
for _ in range(400):
    step()
print(watch.alarms)
"""
    program.folder.joinpath("train.py").write_text(text)
    ran = Plimsoll(program.folder, cache).run("run", "--watch", "--", PYTHON, "train.py", environment=on_a_device())
    # The run goes on to be watched when the block is over.
    assert ran.stdout == "[]\n" and len(ran.sentences) == 1 and "memory grows by 1.0 MiB a step at" in ran.sentences[0], ran


def test_an_alarm_is_sent_to_an_address(program, on_a_device):
    got = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            # The first try fails.
            self.send_response(503 if len(got) == 1 else 204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        text = MODEL + f"plimsoll.watch(webhook='http://127.0.0.1:{server.server_port}/alarms')\nfor _ in range(300):\n    step()\n"
        ran = program.run(text, environment=on_a_device())
        server.shutdown()
    assert ran.returncode == 0 and len(got) == 2 and got[0] == got[1], (ran, got)
    assert_described("alarm", got[0])


@pytest.mark.soak
def test_others_watch_from_beside(program, on_a_device, cache):
    """`plimsoll watch LABEL` begins while the run is under way, and ends with it."""
    text = MODEL + """
import time
plimsoll.watch(label="night", quiet=True)
for index in range(250):
    step()
    time.sleep(0.02)
"""
    program.folder.joinpath("train.py").write_text(text)
    environment = on_a_device()
    plimsoll = Plimsoll(program.folder, cache)
    nobody = plimsoll.run("watch", "night", environment=environment)
    assert nobody.code == 2 and "there is no watched run \"night\": no run is watched here" in nobody.stderr, nobody
    thread = threading.Thread(target=program.start, args=(sys.executable, "train.py"), kwargs={"environment": environment})
    thread.start()
    while not list(program.folder.glob("running/*.json")):
        assert thread.is_alive()
        time.sleep(0.05)
    beside = plimsoll.run("watch", "night", "--alarms", "alarms.jsonl", environment=environment)
    thread.join()
    first, alarm, last = beside.stdout.splitlines()
    assert beside.code == 1 and first.startswith("night (") and alarm.startswith("step ") and "has ended, after step" in last, beside
    assert json.loads(program.folder.joinpath("alarms.jsonl").read_text())["text"] == alarm


def test_nothing_is_watched_on_the_phantom(plimsoll):
    plimsoll.script("import sys; sys.path.insert(0, %r)\n" % plimsoll_package() + MODEL + "plimsoll.watch()\nfor _ in range(9):\n    step(False)\n")
    ran = plimsoll.predict("train.py", options=("--gpu", "t4"))
    assert ran.code == 0 and ran.report["steps_seen"] >= 3, ran


def plimsoll_package():
    from harness import ROOT

    return str(ROOT / "python")


HF = """
import torch, plimsoll.hf
from transformers import Trainer, TrainingArguments
kept = []
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(256, 256)
    def forward(self, x, labels=None):
        kept.append(torch.zeros(1 << 19, device=x.device))
        out = self.layer(x)
        return {"loss": (out - labels).pow(2).mean(), "logits": out}
data = [{"x": torch.randn(256), "labels": torch.randn(256)} for _ in range(300)]
arguments = TrainingArguments("out", per_device_train_batch_size=4, max_steps=240, logging_steps=5, report_to=[], save_strategy="no", disable_tqdm=True)
watch = plimsoll.hf.Watch(quiet=True)
trainer = Trainer(Model(), arguments, train_dataset=data, callbacks=[watch])
trainer.train()
print("found", [(it.code, it.line) for it in watch.watch.alarms], any("plimsoll_alarm" in it for it in trainer.state.log_history))
"""

LIGHTNING = """
import torch, plimsoll.lightning
import lightning as L
kept = []
class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(256, 256)
    def training_step(self, batch, index):

        kept.append(torch.zeros(1 << 20, device=self.device))
        return self.layer(batch).pow(2).mean()
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())
loader = torch.utils.data.DataLoader(torch.randn(480, 256), batch_size=4)
watch = plimsoll.lightning.Watch(quiet=True)
trainer = L.Trainer(
    accelerator="gpu", devices=1, max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, callbacks=[watch],
)
trainer.fit(Model(), loader)
print("found", [(it.code, it.line) for it in watch.watch.alarms], True)
"""

ACCELERATE = """
import torch, plimsoll
from accelerate import Accelerator
kept = []
accelerator = Accelerator(gradient_accumulation_steps=2)
model = torch.nn.Linear(256, 256)
optimizer = torch.optim.Adam(model.parameters())
loader = torch.utils.data.DataLoader(torch.randn(960, 256), batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
watch = plimsoll.watch(quiet=True)
for x in loader:
    with accelerator.accumulate(model):
        kept.append(torch.zeros(1 << 19, device=accelerator.device))
        accelerator.backward(model(x).pow(2).mean())
        optimizer.step()
        optimizer.zero_grad()
found = watch.stop()
print("found", [(it.code, it.line) for it in found], 30 < found[0].step < 90)
"""


@pytest.mark.parametrize("text", [HF, LIGHTNING, ACCELERATE], ids=["transformers", "lightning", "accelerate"])
def test_trainers_are_watched(program, on_a_device, text):
    ran = program.run(text, environment=on_a_device())
    line = next(number for number, it in enumerate(text.splitlines(), start=1) if "kept.append" in it)
    assert ran.returncode == 0 and ran.stdout.splitlines()[-1] == f"found [('watch/growth', {line})] True", ran


def test_trackers_that_are_in_use_get_numbers(program, on_a_device):
    """Modules of those names, as far as a run of theirs is concerned; none is imported by us."""
    text = MODEL + """
import types
class Run:
    got = []
    def log(self, numbers, commit):
        self.got.append((numbers, commit))
wandb, mlflow = types.ModuleType("wandb"), types.ModuleType("mlflow")
wandb.run = Run()
logged = []
mlflow.active_run = lambda: object()
mlflow.log_metrics = lambda numbers, step, synchronous: logged.append((numbers, step, synchronous))
sys.modules.update(wandb=wandb, mlflow=mlflow)
with plimsoll.watch():
    for _ in range(20):
        step(False)
(numbers, commit), = Run.got
print(sorted(numbers), commit, logged[0][1:], logged[0][0] == numbers)
print("tensorboard" in sys.modules)
"""
    ran = program.run(text, environment=on_a_device())
    names = ["plimsoll/alarms", "plimsoll/allocated_gib", "plimsoll/peak_reserved_gib", "plimsoll/reserved_gib"]
    first, second = ran.stdout.splitlines()
    assert eval(first.partition("] ")[0] + "]") == names and first.endswith("False (1, False) True") and second == "False", ran


def test_writers_of_tensorboard_get_numbers_while_they_are_open(program, on_a_device):
    """A class where TensorBoard's is. One writer is closed before, one while the run is watched, and one is made then. A second
    watch of the process finds the constructor replaced, and leaves it so."""
    text = MODEL + """
import types
module = types.ModuleType("tensorboardX.writer")
class SummaryWriter:
    def __init__(self):
        self.file_writer, self.got = object(), []
    def add_scalar(self, name, value, step):
        assert self.file_writer is not None
        self.got.append((name, step))
    def close(self):
        self.file_writer = None
module.SummaryWriter = SummaryWriter
sys.modules["tensorboardX.writer"] = module
class Odd:
    @property
    def __class__(self):
        sys.exit("looked at")
odd = Odd()
early, first = SummaryWriter(), SummaryWriter()
early.close()
with plimsoll.watch():
    # Told after every step.
    sys.modules["plimsoll_agent.watch.trackers"].EVERY = sys.modules["plimsoll_agent.watch.watcher"].A_WHILE = 0.0
    for _ in range(5):
        step(False)
    first.close()
    second = type("Mine", (SummaryWriter,), {})()
    for _ in range(5):
        step(False)
steps = [sorted({step for name, step in it.got if name == "plimsoll/allocated_gib"}) for it in (early, first, second)]
print(not steps[0], 1 < len(steps[1]) <= 5, 1 < len(steps[2]) <= 5, steps[1][-1] < steps[2][0])
replaced, before = SummaryWriter.__init__, len(second.got)
with plimsoll.watch():
    step(False)
print(SummaryWriter.__init__ is replaced, len(second.got) > before)
"""
    ran = program.run(text, environment=on_a_device())
    assert ran.stdout == "True True True True\nTrue True\n", ran


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_call_of_a_module_costs_nothing_more(program, on_a_device, when):
    """Nothing grows, so nothing is recorded, and calls are PyTorch's own; whether CUDA was there first or not."""
    text = f"""
import torch
own = torch.nn.Module.__call__
if "{when}" == "after":
    torch.zeros(1, device="cuda")
import plimsoll
with plimsoll.watch():
    model = torch.nn.Linear(8, 8).cuda()
    print(torch.nn.Module.__call__ is own)
"""
    ran = program.run(text, environment=on_a_device())
    assert ran.stdout == "True\n", ran
