"""Replaces the symlink `latest` atomically, writes through a symlink and a linked folder, and makes and breaks hard links."""
import os
import shutil

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

assert os.readlink("latest") == "checkpoints/step_000600.pt", os.readlink("latest")
assert os.stat("hard.pt").st_nlink == 2
model = nn.Linear(512, 512).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(601, 607):
    loss = model(torch.randn(32768, 512, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    name = f"also-checkpoints/step_{step:06}.pt"
    torch.save({"model": model.state_dict(), "step": step}, name)
    os.symlink(f"checkpoints/step_{step:06}.pt", "latest.new")
    os.replace("latest.new", "latest")
    if os.path.exists("newest.pt"):
        os.unlink("newest.pt")
    os.link(name, "newest.pt")

assert os.readlink("latest") == "checkpoints/step_000606.pt"
assert torch.load("latest")["step"] == 606 and torch.load("checkpoints/step_000606.pt")["step"] == 606
assert os.path.samefile("newest.pt", "checkpoints/step_000606.pt") and os.stat("newest.pt").st_nlink == 2
with open("hard.pt", "r+b") as file:  # two names, one file
    file.write(b"changed")
assert open("checkpoints/step_000600.pt", "rb").read(7) == b"changed"
assert os.path.samefile("hard.pt", "checkpoints/step_000600.pt")
os.remove("checkpoints/step_000600.pt")
assert open("hard.pt", "rb").read(7) == b"changed"
with open("latest", "ab") as file:  # through the link
    file.write(b"more")
assert open("newest.pt", "rb").read()[-4:] == b"more"
os.makedirs("nowhere")
open("dangling", "w").write("made through a link to nothing\n")
assert open("nowhere/at-all").read().startswith("made")
shutil.copy("latest", "copied", follow_symlinks=False)
assert os.path.islink("copied")
print("READ BACK OK")
