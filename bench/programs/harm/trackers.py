"""Logs to TensorBoard and to wandb in offline mode where these are installed, and to a home-made tracker below mlruns/ in any case."""
import json
import os
import time
import uuid

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

writer = wandb = None
try:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter("tb")
except ImportError:
    print("SKIPPED in part: no tensorboard")
try:
    import wandb

    wandb.init(mode="offline", project="p", dir="wandb_out")
except ImportError:
    print("SKIPPED in part: no wandb")
assert not os.path.exists("mlruns"), "somebody tracked here before"
mine = f"mlruns/0/{uuid.uuid4().hex}"
os.makedirs(f"{mine}/metrics")
os.makedirs(f"{mine}/artifacts/model")
json.dump({"status": "RUNNING", "start": time.time()}, open(f"{mine}/meta.json", "w"))
model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(8):
    loss = model(torch.randn(8192, 1024, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with open(f"{mine}/metrics/loss", "a") as file:
        file.write(f"{time.time()} {loss.item()} {step}\n")
    if writer is not None:
        writer.add_scalar("loss", loss.item(), step)
    if wandb is not None:
        wandb.log({"loss": loss.item()})
torch.save(model.state_dict(), f"{mine}/artifacts/model/weights.pt")
with open(f"{mine}/meta.json", "r+") as file:
    meta = json.load(file) | {"status": "FINISHED"}
    file.seek(0)
    file.truncate()
    json.dump(meta, file)
if writer is not None:
    writer.close()
    assert any(os.path.getsize(f"tb/{it}") for it in os.listdir("tb"))
if wandb is not None:
    wandb.finish()

assert len(open(f"{mine}/metrics/loss").readlines()) == 8
assert json.load(open(f"{mine}/meta.json"))["status"] == "FINISHED"
assert len(os.listdir("mlruns/0")) == 1
print("READ BACK OK")
