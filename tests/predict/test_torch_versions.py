"""Other versions of PyTorch and Python, where they are installed: PLIMSOLL_OTHER_PYTHONS names their interpreters, or
the environments that these are in, with colons between.

There is no recording of a GPU to compare with: what is checked is that programs run, that nothing of ours failed, and
that a replay of what they did explains every event. docs/pytorch-versions.md has the results.
"""

import functools
import os
import re
import subprocess
from pathlib import Path

import pytest
from harness import ROOT, assert_consistent


def interpreter(given):
    path = Path(given)
    return path / "bin" / "python" if path.is_dir() else path


PYTHONS = [interpreter(it) for it in os.environ.get("PLIMSOLL_OTHER_PYTHONS", "").split(os.pathsep) if it]
pytestmark = [pytest.mark.soak, pytest.mark.skipif(not PYTHONS, reason="PLIMSOLL_OTHER_PYTHONS names no other Python")]


@pytest.fixture(params=PYTHONS, ids=lambda it: it.parents[1].name)
def python(request):
    return request.param


@functools.cache
def has(python, module):
    look = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", look]).returncode == 0


BEGIN = """
import torch
from torch import nn
from torch.nn import functional as F

def train(model, x, dtype=None, optimizer=torch.optim.AdamW, scaler=None):
    optimizer = optimizer(model.parameters())
    for _ in range(3):
        with torch.autocast("cuda", dtype, enabled=dtype is not None):
            loss = model(x).float().pow(2).mean()
        optimizer.zero_grad()
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
"""
PROGRAMS = {
    "layers": (
        12,
        """
from torch.utils.checkpoint import checkpoint
train(nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 10)).cuda(), torch.randn(256, 512, device="cuda"))
train(nn.Linear(512, 512).cuda(), torch.randn(64, 512, device="cuda"), torch.float16, torch.optim.SGD, torch.amp.GradScaler())

class Words(nn.Sequential):
    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False)

words = Words(nn.Embedding(1000, 64), nn.LayerNorm(64), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).cuda()
train(words, torch.randint(0, 1000, (8, 128), device="cuda"), torch.bfloat16)
train(words, torch.randint(0, 1000, (8, 256), device="cuda"))
""",
    ),
    "convolutions": (
        9,
        """
model = nn.Sequential(nn.Conv2d(3, 64, 7, 2), nn.BatchNorm2d(64), nn.Conv2d(64, 64, 1), nn.Conv2d(64, 64, 3, groups=64)).cuda()
train(model, torch.randn(8, 3, 96, 96, device="cuda"))
model = nn.Sequential(nn.Conv2d(8, 64, 3), nn.ReLU(), nn.ConvTranspose2d(64, 32, 4, 2)).cuda()
model = model.to(memory_format=torch.channels_last)
train(model, torch.randn(8, 8, 64, 64, device="cuda").to(memory_format=torch.channels_last), torch.float16)
torch.backends.cudnn.benchmark = True
train(nn.Conv3d(4, 16, 3, padding=1).cuda(), torch.randn(2, 4, 16, 32, 32, device="cuda"))
""",
    ),
    "attention": (
        9,
        """
layer = nn.TransformerEncoderLayer(128, 4, batch_first=True).cuda().bfloat16()
train(layer, torch.randn(4, 100, 128, device="cuda", dtype=torch.bfloat16))

class Attention(nn.Linear):
    def forward(self, x, heads=8, **options):
        q, k, v = super().forward(x).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        mask = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device="cuda").tril() if self.is_masked else None
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, dropout_p=0.1)

for is_masked in (False, True):
    layer = Attention(512, 3 * 512).cuda()
    layer.is_masked = is_masked
    train(layer, torch.randn(2, 300, 512, device="cuda"), torch.bfloat16)
""",
    ),
    "libraries": (
        9,
        """
class Recurrent(nn.LSTM):
    def forward(self, x):
        return super().forward(x)[0]

class Algebra(nn.Linear):
    def forward(self, x):
        q, r = torch.linalg.qr(super().forward(x))
        return torch.fft.rfft(q @ torch.linalg.solve(r + 10 * torch.eye(64, device="cuda"), r)).abs()

class Masked(nn.Linear):
    def forward(self, x):
        return super().forward(x[mask])

train(Recurrent(64, 128, 2, dropout=0.1).cuda(), torch.randn(20, 8, 64, device="cuda"))
train(Algebra(64, 64).cuda(), torch.randn(4, 64, 64, device="cuda"))
mask = (torch.arange(200) % 2 == 0).cuda()
x = torch.randn(200, 64, device="cuda")
assert len(x[mask]) == 100
train(Masked(64, 64).cuda(), x)
""",
    ),
    "compiled": (
        3,
        'train(torch.compile(nn.Sequential(nn.Linear(64, 64), nn.GELU()).cuda()), torch.randn(8, 64, device="cuda"))',
    ),
    "CUDA graph": (
        3,
        """
x = torch.randn(8, 64, device="cuda")
train(torch.cuda.make_graphed_callables(nn.Linear(64, 64).cuda(), (x,)), x)
""",
    ),
}
RANKS = {
    "DDP": """
dist.all_reduce(torch.ones(4), group=dist.new_group(backend="gloo"))
model = nn.Sequential(nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 1000)).cuda()
train(nn.parallel.DistributedDataParallel(model), torch.randn(64, 1000, device="cuda"))
""",
    "FSDP2": """
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
model = nn.Sequential(*(nn.Sequential(nn.Linear(1000, 1000), nn.ReLU()) for _ in range(3))).cuda()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for it in (*model, model):
    fully_shard(it, mp_policy=policy)
train(model, torch.randn(64, 1000, device="cuda"))
""",
    "FSDP1": """
from torch.distributed.fsdp import FullyShardedDataParallel
train(FullyShardedDataParallel(nn.Linear(1000, 1000).cuda()), torch.randn(64, 1000, device="cuda"))
""",
}
JOIN = """
import os
import torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
"""


def assert_nothing_of_ours_failed(ran):
    assert not {it["code"] for it in ran.report["notes"]} & {"agent-failed", "not-imitated", "unread"}, ran.report["notes"]


def test_doctor(plimsoll, python):
    ran = plimsoll.run("doctor", environment=plimsoll.environment(PLIMSOLL_PYTHON=str(python)))
    assert ran.code == 0 and ran.stdout.endswith("\nable to predict\n"), ran
    assert re.search("  support +(supported|experimental|unknown): ", ran.stdout), ran


@pytest.mark.parametrize("program", PROGRAMS)
def test_runs_and_every_event_is_explained(plimsoll, python, program):
    steps, text = PROGRAMS[program]
    script = plimsoll.script(BEGIN + text)
    recording = plimsoll.folder / "run.zip"
    ran = plimsoll.predict(python, script, options=["--gpu", "h200", "--until-exit", "--record", recording])
    assert ran.code == 0, ran
    assert ran.report["outcome"] == "fits" and ran.report["steps_seen"] == steps, ran
    assert_consistent(ran.report)
    assert_nothing_of_ours_failed(ran)
    replayed = plimsoll.run("replay", recording)
    assert replayed.code == 0 and replayed.stdout.startswith("EXPLAINED every one"), replayed


@pytest.mark.parametrize("kind", RANKS)
def test_ranks_of_an_imagined_cluster(plimsoll, python, kind):
    script = plimsoll.script(BEGIN + JOIN + RANKS[kind])
    ran = plimsoll.predict(python, script, options=["--gpu", "h200", "--world-size", "2"])
    assert ran.code == 0, ran
    assert ran.report["steps_seen"] == 3, ran
    assert_nothing_of_ours_failed(ran)


def test_two_processes_that_meet(plimsoll, python):
    script = plimsoll.script(BEGIN + JOIN + RANKS["DDP"] + "dist.destroy_process_group()\n")
    command = (python, "-m", "torch.distributed.run", "--nproc-per-node", "2", script)
    ran = plimsoll.predict(*command, options=["--gpu", "h200", "--all-ranks"])
    assert ran.code == 0, ran
    assert_nothing_of_ours_failed(ran)


def test_memory_runs_out_as_pytorch_says_it(plimsoll, python):
    text = 'train(nn.Linear(30000, 30000).cuda(), torch.randn(8, 30000, device="cuda"))\n'
    script = plimsoll.script(BEGIN + text)
    ran = plimsoll.predict(python, script, options=["--gpu", "h200", "--memory", "8GiB"])
    assert ran.code == 1 and ran.report["outcome"] == "out_of_memory", ran
    assert "train.py" in ran.stdout, ran
    assert_nothing_of_ours_failed(ran)


@pytest.mark.parametrize("example, needs", [("finetune_gpt2.py", "transformers"), ("train_resnet50.py", "torchvision")])
def test_examples(plimsoll, python, example, needs):
    if not has(python, needs):
        pytest.skip(f"no {needs} there")
    ran = plimsoll.predict(python, ROOT / "examples" / example, options=["--gpu", "a100-80g"])
    assert ran.code == 0, ran
    assert 3 <= ran.report["steps_seen"], ran
    assert example in str(ran.report["top_lines"]), ran
    assert_consistent(ran.report)
    assert_nothing_of_ours_failed(ran)
