"""Removes the old output folder with shutil.rmtree and makes it anew; renames another folder away; removes single files and a link."""
import os
import shutil
from pathlib import Path

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

assert os.path.exists("output/precious.txt"), "the old output was wiped before"
shutil.rmtree("output")
os.makedirs("output/samples")
assert os.listdir("output") == ["samples"]  # nothing of the old one shows through
os.rmdir("empty")
os.makedirs("empty/now/not")
for old in Path("checkpoints").glob("step_*.pt"):
    old.unlink()
os.remove("latest")
os.rename("hf_out", "hf_out.bak")  # a whole folder with what is in it
shutil.rmtree("notes and étude")
model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(5):
    y = model(torch.randn(8192, 1024, device="cuda"))
    y.pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    Path(f"output/samples/{step}.txt").write_text(f"{step}\n")

assert sorted(os.listdir("output/samples")) == [f"{it}.txt" for it in range(5)]
assert sorted(os.listdir("checkpoints")) == ["best.pt", "last.pt"]
assert not os.path.lexists("latest") and not os.path.exists("hf_out") and not os.path.exists("notes and étude")
os.mkdir("hf_out")
assert os.listdir("hf_out") == []  # made again, and empty
assert sorted(os.listdir("hf_out.bak")) == ["checkpoint-10", "checkpoint-5"]
assert len(torch.load("hf_out.bak/checkpoint-10/optimizer.pt")) == 2
assert os.path.isdir("empty/now/not")
print("READ BACK OK")
