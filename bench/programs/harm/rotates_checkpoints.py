"""Keeps the last two numbered checkpoints and deletes the older ones, and keeps the best by best.txt."""
import glob
import os

import torch
from torch import nn

KEEP = 2
run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

model = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
found = sorted(glob.glob("checkpoints/step_*.pt"))
state = torch.load(found[-1])
model.load_state_dict(state["model"])
optimizer.load_state_dict(state["optimizer"])
print("RESUMED", found[-1], flush=True)
assert found[-1].endswith("step_000600.pt"), found
start = state["step"]
for step in range(start + 1, start + 9):
    x = torch.randn(8192, 512, device="cuda")
    loss = (model(x) - x).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    path = f"checkpoints/step_{step:06}.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)
    for old in sorted(glob.glob("checkpoints/step_*.pt"))[:-KEEP]:
        os.remove(old)
    best = float(open("best.txt").read())
    if loss.item() < best:
        open("best.txt", "w").write(repr(loss.item()))
        torch.save(model.state_dict(), "checkpoints/best.pt")

assert sorted(os.listdir("checkpoints")) == ["best.pt", "last.pt", "step_000607.pt", "step_000608.pt"]
assert torch.load("checkpoints/step_000608.pt")["step"] == 608
assert "model" not in torch.load("checkpoints/best.pt")
assert os.path.exists("hard.pt")  # another name of a file that was deleted
print("READ BACK OK")
