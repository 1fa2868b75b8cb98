"""Overwrites checkpoints by torch.save: to a path, a Path, an open handle, and bytes from a BytesIO; resumes from last.pt."""
import io
from pathlib import Path

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

model = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
state = torch.load("checkpoints/last.pt")
model.load_state_dict(state["model"])
optimizer.load_state_dict(state["optimizer"])
start = state["step"]
print("RESUMED at", start, flush=True)
assert start == 2, "this is not the checkpoint that was here"

for step in range(start, start + 6):
    x = torch.randn(8192, 512, device="cuda")
    loss = (model(x) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
    torch.save(state, "checkpoints/last.pt")
    torch.save(model.state_dict(), Path("checkpoints") / "best.pt")
    with open("checkpoints/step_000500.pt", "wb") as file:
        torch.save(state, file)
    buffer = io.BytesIO()
    torch.save({"step": step}, buffer)
    Path("output/from_bytes.pt").write_bytes(buffer.getvalue())

again = torch.load("checkpoints/last.pt")
assert again["step"] == start + 6, again["step"]
assert again["model"].keys() == model.state_dict().keys()
assert set(torch.load("checkpoints/best.pt")) == set(model.state_dict())
assert torch.load("checkpoints/step_000500.pt")["step"] == start + 6
assert torch.load("output/from_bytes.pt")["step"] == start + 5
print("READ BACK OK")
