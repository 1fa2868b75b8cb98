"""Children, launchers, ranks."""

import os

import pytest
from harness import PYTHON
from test_steps import MODEL

LOADER = """
import torch, torch.nn as nn, torch.nn.functional as F
class Data(torch.utils.data.Dataset):
    def __len__(self): return 1000
    def __getitem__(self, i): return torch.randn(64), 0
def main():
    net = nn.Linear(64, 10).cuda()
    opt = torch.optim.AdamW(net.parameters())
    loader = torch.utils.data.DataLoader(Data(), 16, num_workers=2, multiprocessing_context=%r, pin_memory=True)
    for x, y in loader:
        opt.zero_grad(); F.cross_entropy(net(x.cuda()), y.cuda()).backward(); opt.step()
    print("not reached")
if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.soak)])
def test_loader_workers_leave_nothing(run, method):
    r = run(LOADER % method)
    assert (r.returncode, r.stdout, r.stderr) == (0, "", "")
    assert (r.process.end["why"], r.process.end["steps"]) == ("steady", 3)


def test_a_forked_child_leaves_the_parents_recording_alone(run):
    r = run(
        MODEL
        + """
import os, sys
net(batch()[0])
if os.fork() == 0:
    nn.Linear(2, 2)(torch.ones(2))
    sys.exit(5)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    )
    assert (r.returncode, r.stdout) == (0, "5\n")
    assert len(r.process.all("end")) == 1 and len(r.process.all("begin")) == 1


RANKS = """
import os, sys, torch, torch.nn as nn, torch.multiprocessing as mp
def rank(i, n):
    net = nn.Linear(64, 64).cuda()
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for k in range(100):
        opt.zero_grad(); net(torch.ones(8, 64, device="cuda")).sum().backward(); opt.step()
        if "fail" in sys.argv and i == 1:
            torch.empty(1 << 42, device="cuda")
if __name__ == "__main__":
    mp.start_processes(rank, (2,), nprocs=2, start_method=%r)
    print("joined")
"""


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.soak)])
def test_ranks_have_recordings_of_their_own(run, method):
    r = run(RANKS % method)
    assert (r.returncode, r.stdout) == (0, "joined\n"), r.stderr
    used = [p for p in r.processes if p.end["used_cuda"]]
    assert [p.end["why"] for p in used] == ["steady", "steady"]
    assert all(p.trace() for p in used)


def test_a_rank_that_runs_out_says_so(run):
    r = run(RANKS % "spawn", "fail")
    assert r.returncode == 1
    assert "oom" in [p.end["why"] for p in r.processes]


SCRIPT = (
    MODEL
    + """
opt = torch.optim.SGD(net.parameters(), 0.1)
for i in range(100):
    x, y = batch()
    opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
print("not reached")
"""
)


def test_python_dash_c_dash_m_and_a_shell_script(run):
    run.file("package/__init__.py", "")
    run.file("package/train.py", SCRIPT)
    shell = run.file("train.sh", 'set -e\n"$1" -m package.train\necho after\n')
    for command, script in (
        ([PYTHON, "-c", SCRIPT], None),
        ([PYTHON, "-m", "package.train"], "train.py"),
        (["bash", shell, PYTHON], "train.py"),
    ):
        r = run.command(command)
        assert (r.returncode, r.stderr) == (0, ""), r.stderr
        assert r.process.end["why"] == "steady"
        found = r.process.one("begin")["script"]
        assert (found and os.path.basename(found)) == script


def test_torchrun(run):
    script = run.file("train.py", SCRIPT)
    r = run.command([PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1", script])
    assert r.returncode == 0, r.stderr
    (rank,) = [p for p in r.processes if p.end["used_cuda"]]
    assert (rank.end["why"], rank.one("begin")["rank"], rank.one("begin")["world_size"]) == ("steady", 0, 1)


@pytest.mark.soak
def test_accelerate_launch_and_its_optimizer(run):
    script = run.file(
        "train.py",
        MODEL
        + """
from accelerate import Accelerator
a = Accelerator(gradient_accumulation_steps=2)
opt = torch.optim.AdamW(net.parameters())
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(400, 64), torch.zeros(400).long()), 4)
net, opt, data = a.prepare(net, opt, data)
for x, y in data:
    with a.accumulate(net):
        a.backward(F.cross_entropy(net(x), y)); opt.step(); opt.zero_grad()
""",
    )
    r = run.command([PYTHON, "-m", "accelerate.commands.launch", "--num_processes=1", "--mixed_precision=no", "--num_machines=1", "--dynamo_backend=no", script])
    assert r.returncode == 0, r.stderr
    (rank,) = [p for p in r.processes if p.end["used_cuda"]]
    assert (rank.end["why"], rank.end["steps"], rank.phases.count("backward")) == ("steady", 3, 6)


def test_lightning(run):
    r = run(
        """
import torch, lightning as L, torch.nn as nn
class Module(L.LightningModule):
    def __init__(self):
        super().__init__(); self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    def training_step(self, b, i): return nn.functional.cross_entropy(self.net(b[0]), b[1])
    def validation_step(self, b, i): self.log("v", nn.functional.cross_entropy(self.net(b[0]), b[1]))
    def configure_optimizers(self): return torch.optim.AdamW(self.parameters())
data = torch.utils.data.TensorDataset(torch.randn(640, 64), torch.randint(0, 10, (640,)))
loader = torch.utils.data.DataLoader(data, batch_size=16)
L.Trainer(max_epochs=2, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False).fit(Module(), loader, loader)
print("not reached")
"""
    )
    assert r.returncode == 0, r.stderr
    assert "not reached" not in r.stdout and "Traceback" not in r.stderr
    assert (r.process.end["why"], r.process.end["steps"]) == ("steady", 3)
    assert "net.0.weight" in r.process.names("parameter")


def test_a_hugging_face_trainer(run):
    r = run(
        """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
class Data(torch.utils.data.Dataset):
    def __len__(self): return 400
    def __getitem__(self, i):
        ids = torch.randint(0, 500, (64,)); return {"input_ids": ids, "labels": ids}
net = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=500))
arguments = TrainingArguments("out", per_device_train_batch_size=4, gradient_accumulation_steps=2, report_to=[],
    dataloader_num_workers=2, save_strategy="no", gradient_checkpointing=True)
Trainer(net, arguments, train_dataset=Data()).train()
print("not reached")
""",
        timeout=240,
    )
    assert r.returncode == 0, r.stderr
    assert "not reached" not in r.stdout and "Traceback" not in r.stderr
    assert (r.process.end["why"], r.process.end["steps"]) == ("steady", 3)
    assert {"input_ids", "labels"} <= r.process.names("input")
    assert "transformer.h.0.attn.c_attn.weight.exp_avg" in r.process.names("optimizer_state")


CALLS = {
    "a model": ("compiled = torch.compile(net, backend='eager')", "compiled(batch()[0])"),
    "a model in place": ("net.compile(backend='eager')", "net(batch()[0])"),
    "a function": ("compiled = torch.compile(lambda x: net(x) + 1, backend='eager')", "compiled(batch()[0])"),
    "a decorated function": ("@torch.compile(backend='eager')\ndef compiled(x):\n    return net(x) + 1", "compiled(batch()[0])"),
}


@pytest.mark.matrix(2)
@pytest.mark.parametrize("what", sorted(CALLS))
def test_torch_compile_is_noted_once_something_compiled_is_called(run, what):
    made, called = CALLS[what]
    r = run(MODEL + made + "\nprint(nn.Module.__call__.__qualname__)\n" + called + "\nprint(nn.Module.__call__.__qualname__)", stop="until-exit")
    assert r.returncode == 0, r.stderr
    assert r.stdout.split()[1] == "Module._wrapped_call_impl"
    assert any("torch-compile" in it.notes for it in r.processes)


def test_what_is_compiled_and_never_called_changes_nothing(run):
    """bitsandbytes decorates functions of its own when it is imported."""
    training = """
opt = torch.optim.AdamW(net.parameters())
for i in range(3):
    x, y = batch()
    opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
net.eval()
with torch.no_grad(): net(batch()[0])
"""
    plain = run(MODEL + training, stop="until-exit").process
    decorated = run(MODEL + "@torch.compile\ndef never(x): return x + 1\ntorch.compile(net)\n" + training, stop="until-exit")
    (process,) = [it for it in decorated.processes if it.all("mark")]
    assert process.phases == plain.phases and "forward" in plain.phases and "evaluation" in plain.phases
    assert process.notes == [] and not process.all("compiles")


def test_unknown_reads_are_counted_by_the_users_line(run):
    r = run(
        MODEL
        + """
x = torch.empty(3, 5, device="cuda").log_normal_()
for i in range(2):
    x.sum().item()  # twice
x.cpu()
torch.tensor([1.0, 2.0], device="cuda").cpu()  # known
"""
    )
    assert r.returncode == 0, r.stderr
    reads = r.process.all("read")
    assert [(e["count"], e["bytes"], e["text"]) for e in reads] == [(2, 8, "x.sum().item()  # twice"), (1, 60, "x.cpu()")]
    phantom = r.process.one("phantom")
    assert phantom["unknown_reads"] == {"count": 3, "bytes": 68}
    assert 3 <= phantom["launches"]
