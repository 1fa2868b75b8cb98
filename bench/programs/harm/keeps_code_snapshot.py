"""Copies its code below runs/expN, renames the old output folder away, swaps two folders, and removes what became empty."""
import filecmp
import glob
import os
import shutil
from pathlib import Path

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

number = 1 + max([int(it.name[3:]) for it in Path("runs").glob("exp*")], default=0)
assert number == 1, number
place = Path(f"runs/exp{number}")
place.mkdir(parents=True)
shutil.copytree(".", place / "code", ignore=shutil.ignore_patterns("runs", "*.pt", "*.bin", "hf_out", "lit"), symlinks=True)
os.rename("output", f"output.{run}")
os.makedirs("output/eval")
os.rename("lit", "lit.old")
os.rename("hf_out", "lit")
os.rename("lit.old", "hf_out")
os.renames("data/part-0.txt", "moved/away/part-0.txt")
for path in glob.glob("data/*"):
    os.remove(path)
os.removedirs("data")
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    loss = model(torch.randn(16384, 512, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    (place / "results.txt").open("a").write(f"{step} {loss.item()}\n")
    torch.save(model.state_dict(), place / f"last-{step % 2}.pt")

assert filecmp.cmp("precious.txt", place / "code" / "precious.txt", shallow=False)
assert os.path.islink(place / "code" / "latest")
assert sorted(os.listdir(f"output.{run}")) == ["old", "precious.txt", "read-only.txt"]
assert os.path.getsize(f"output.{run}/old/deep/result.bin") == 70_000
assert "last.ckpt" in os.listdir("hf_out") and "checkpoint-10" in os.listdir("lit")
assert not os.path.exists("data") and os.path.exists("moved/away/part-0.txt")
assert os.listdir("output") == ["eval"] and len((place / "results.txt").read_text().splitlines()) == 5
assert sorted(it.name for it in os.scandir(place)) == ["code", "last-0.pt", "last-1.pt", "results.txt"]
print("READ BACK OK")
