"""Commits the state of the code with git before training, as experiment trackers do, and reads the commit back."""
import os
import shutil
import subprocess

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)
if not shutil.which("git"):
    print("SKIPPED: no git")
    raise SystemExit


def git(*words):
    names = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "safe.directory=*", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *names, *words], cwd="repo", check=True, capture_output=True, text=True).stdout


assert git("rev-list", "--count", "HEAD") == "1\n", "somebody committed here before"
model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(4):
    loss = model(torch.randn(8192, 1024, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    open("repo/notes.txt", "a").write(f"step {step}\n")
    git("add", "-A")
    git("commit", "-q", "-m", f"step {step}")
git("tag", "run-8")
git("checkout", "-q", "-b", "experiment")
git("gc", "-q")

assert git("rev-list", "--count", "HEAD") == "5\n"
assert git("show", "run-8:notes.txt") == "".join(f"step {it}\n" for it in range(4))
assert git("status", "--porcelain") == "" and git("fsck") == ""
assert os.path.exists("repo/.git/refs/heads/experiment") or "experiment" in git("branch")
print("READ BACK OK")
