"""What `fit` proposes for a job of several ranks is what `predict` answers for it."""

import json

import pytest
from harness import PYTHON

DDP = """
import torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
model = nn.Sequential(*[it for _ in range(8) for it in (nn.Linear(4096, 4096), nn.GELU())]).cuda()
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.randn(256, 4096, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.soak
def test_a_job_that_depends_on_a_race_needs_a_plan_that_does_not(plimsoll):
    (plimsoll.folder / "train.py").write_text(DDP)
    command = (PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py")
    ends = plimsoll.predict(*command, options=("--gpu", "rtx4090")).report
    between = (ends["early"]["device_bytes"] + ends["late"]["device_bytes"]) // 2
    size = f"{between >> 20}MiB"
    depends = plimsoll.predict(*command, options=("--gpu", "rtx4090", "--memory", size))
    assert depends.report["verdict"] == "depends" and depends.report["undecided"] == "order", depends
    ran = plimsoll.run("fit", "--gpu", "rtx4090", "--budget", size, "--json", "fit.json", "--", *command)
    assert ran.code == 0, ran
    report = json.loads((plimsoll.folder / "fit.json").read_text())
    assert report["outcome"] == "fits_with_plan", report
    planned = plimsoll.predict(*command, options=("--gpu", "rtx4090", "--memory", size, "--plan", "plan.toml"))
    assert planned.report["verdict"] == "fits", planned
