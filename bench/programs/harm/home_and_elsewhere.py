"""Writes outside of its folder: ~/.cache, ~/.config, an absolute path on $SCRATCH, /tmp and /dev/shm."""
import json
import os
from pathlib import Path

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

cache = Path.home() / ".cache" / "x"
index = json.loads((cache / "index.json").read_text())
assert index["entries"] == 3, index
scratch = Path(os.environ["SCRATCH"])
number = len(list((scratch / "runs").iterdir())) + 7
mine = scratch / "runs" / f"run-{number:03}"
assert mine.name == "run-008", mine
mine.mkdir()
shared = Path("/dev/shm/harm-home_and_elsewhere-cache")
shared.mkdir(exist_ok=True)
beside = Path("/tmp/harm-home_and_elsewhere-state.json")
model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(5):
    loss = model(torch.randn(8192, 1024, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.save(model.state_dict(), mine / "weights.pt")
    torch.save(torch.arange(step + 1), shared / "batch.pt")
    beside.write_text(json.dumps({"step": step}))
    index["entries"] += 1
    (cache / "index.json").write_text(json.dumps(index))
(cache / "blob").unlink()
(Path.home() / ".config" / "app.toml").write_text("seen = 8\n")
(Path.home() / ".triton-like" / "deep").mkdir(parents=True)
(scratch / "registry.json").unlink()
os.replace(scratch / "shared.bin", Path.home() / "taken.bin")  # from one folder of the disk to another

assert json.loads((cache / "index.json").read_text())["entries"] == 8 and not (cache / "blob").exists()
assert json.loads(beside.read_text()) == {"step": 4} and len(torch.load(shared / "batch.pt")) == 5
assert torch.load(mine / "weights.pt").keys() == model.state_dict().keys()
assert (Path.home() / "taken.bin").stat().st_size == 300_000 and not (scratch / "shared.bin").exists()
print("READ BACK OK")
