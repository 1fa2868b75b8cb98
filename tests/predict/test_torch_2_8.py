"""PyTorch 2.8 for CUDA 12, where one is installed: PLIMSOLL_PYTHON_T28 names a Python that has it.

There is no recording from a GPU to compare with: what is checked is that programs run, and that a replay of what they
did explains every event.
"""

import os

import pytest

PYTHON = os.environ.get("PLIMSOLL_PYTHON_T28")
pytestmark = pytest.mark.skipif(not PYTHON, reason="PLIMSOLL_PYTHON_T28 names no Python with PyTorch 2.8")

BEGIN = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n"
STEPS = """
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    loss = model(x).float().pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
MODELS = {
    "linear": "model, x = nn.Linear(512, 2048).cuda(), torch.randn(256, 512, device='cuda')",
    "convolutions": """
model = nn.Sequential(nn.Conv2d(3, 64, 7, 2), nn.BatchNorm2d(64), nn.Conv2d(64, 64, 1), nn.Conv2d(64, 64, 3, groups=64)).cuda()
x = torch.randn(8, 3, 96, 96, device="cuda")
""",
    "attention in bf16": """
model = nn.TransformerEncoderLayer(128, 4, batch_first=True).cuda().bfloat16()
x = torch.randn(4, 100, 128, device="cuda", dtype=torch.bfloat16)
""",
    "recurrent": """
class Model(nn.LSTM):
    def forward(self, x):
        return super().forward(x)[0]
model, x = Model(64, 128, 2, dropout=0.1).cuda(), torch.randn(20, 8, 64, device="cuda")
""",
    "linear algebra": """
class Model(nn.Linear):
    def forward(self, x):
        q, r = torch.linalg.qr(super().forward(x))
        return q @ torch.linalg.solve(r + 10 * torch.eye(64, device="cuda"), r)
model, x = Model(64, 64).cuda(), torch.randn(4, 64, 64, device="cuda")
""",
    "a mask from the host": """
class Model(nn.Linear):
    def forward(self, x):
        return super().forward(x[mask])
mask = (torch.arange(200) % 2 == 0).cuda()
model, x = Model(64, 64).cuda(), torch.randn(200, 64, device="cuda")
assert len(x[mask]) == 100
""",
    "compiled": "model, x = torch.compile(nn.Sequential(nn.Linear(64, 64), nn.GELU()).cuda()), torch.randn(8, 64, device='cuda')",
    "CUDA graph": """
model, x = nn.Linear(64, 64).cuda(), torch.randn(8, 64, device="cuda")
model = torch.cuda.make_graphed_callables(model, (x,))
""",
}


@pytest.mark.parametrize("model", MODELS)
def test_runs_and_every_event_is_explained(plimsoll, model):
    script = plimsoll.script(BEGIN + MODELS[model] + STEPS)
    recording = plimsoll.folder / "run.zip"
    ran = plimsoll.predict(PYTHON, script, options=["--gpu", "h200", "--record", recording])
    assert ran.code == 0, ran
    assert ran.report["outcome"] == "fits" and ran.report["steps_seen"] == 3, ran
    assert not [it for it in ran.report["notes"] if "agent" in str(it)], ran
    replayed = plimsoll.run("replay", recording)
    assert replayed.code == 0 and replayed.stdout.startswith("EXPLAINED every one"), replayed


def test_ranks_of_an_imagined_cluster(plimsoll):
    script = plimsoll.script(
        """
import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1000, 1000).cuda())
x = torch.randn(64, 1000, device="cuda")
"""
        + STEPS
    )
    ran = plimsoll.predict(PYTHON, script, options=["--gpu", "h200", "--world-size", "8"])
    assert ran.code == 0, ran
    assert ran.report["steps_seen"] == 3, ran


def test_memory_runs_out_as_pytorch_says_it(plimsoll):
    script = plimsoll.script(BEGIN + "model, x = nn.Linear(30000, 30000).cuda(), torch.randn(8, 30000, device='cuda')\n" + STEPS)
    ran = plimsoll.predict(PYTHON, script, options=["--gpu", "h200", "--memory", "8GiB"])
    assert ran.code == 1 and ran.report["outcome"] == "out_of_memory", ran
    assert "train.py" in ran.stdout, ran
