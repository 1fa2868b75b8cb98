"""Writes checkpoints to a temporary name and moves them over the old ones: os.replace, os.rename, shutil.move, Path.rename."""
import os
import shutil
from pathlib import Path

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

model = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
start = 0
if os.path.exists("checkpoints/last.pt"):
    state = torch.load("checkpoints/last.pt")
    model.load_state_dict(state["model"])
    start = state["step"]
for epoch in range(start, 8):
    x = torch.randn(8192, 512, device="cuda")
    loss = (model(x) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": epoch + 1}
    torch.save(state, "checkpoints/last.pt.tmp")
    os.replace("checkpoints/last.pt.tmp", "checkpoints/last.pt")
    torch.save(state, "best.tmp")
    os.rename("best.tmp", "checkpoints/best.pt")
    torch.save(state, "moved.tmp")
    shutil.move("moved.tmp", "checkpoints/step_000500.pt")
    torch.save(state, "path.tmp")
    Path("path.tmp").rename("model_by_path.pt")
if start == 8:
    raise SystemExit("nothing left to do: somebody has trained here already")

for name in ("checkpoints/last.pt", "checkpoints/best.pt", "checkpoints/step_000500.pt", "model_by_path.pt"):
    assert torch.load(name)["step"] == 8, name
assert not [it for it in os.listdir() + os.listdir("checkpoints") if it.endswith(".tmp")]
print("READ BACK OK")
