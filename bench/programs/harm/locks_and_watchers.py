"""Locks files with flock, lockf and O_EXCL, keeps a pid file, and watches a folder with inotify for what a child writes there."""
import ctypes
import fcntl
import os
import select
import subprocess
import sys

import torch
from filelock import FileLock
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

assert not os.path.exists("train.pid"), "a training runs here, or one left its pid file"
with open("train.pid", "x") as file:
    file.write(str(os.getpid()))
held = open("metrics.csv", "a")
fcntl.flock(held, fcntl.LOCK_EX)
trying = "import fcntl,sys\nf=open('metrics.csv','a')\ntry: fcntl.flock(f, fcntl.LOCK_EX|fcntl.LOCK_NB)\nexcept OSError: sys.exit(7)"
assert subprocess.run([sys.executable, "-c", trying]).returncode == 7  # another process sees that it is locked
held.write("9,0.1\n")
held.flush()
fcntl.flock(held, fcntl.LOCK_UN)
assert subprocess.run([sys.executable, "-c", trying]).returncode == 0
part = os.open("raw.bin", os.O_RDWR)
fcntl.lockf(part, fcntl.LOCK_EX, 100, 0)
os.pwrite(part, b"locked", 0)
lock = FileLock("data/.lock")
with lock:
    other = "import filelock; filelock.FileLock('data/.lock').acquire(timeout=0.1)"
    assert subprocess.run([sys.executable, "-c", other], stderr=subprocess.DEVNULL).returncode == 1, "two have one lock"
libc = ctypes.CDLL(None)
watch = libc.inotify_init()
libc.inotify_add_watch(watch, b"data", 0x100 | 0x80)  # made there, or moved to there
subprocess.run(["sh", "-c", "echo x > data/new.txt; mv data/new.txt data/renamed.txt"], check=True)
assert select.select([watch], [], [], 10)[0], "nothing was seen in the folder"
assert b"new.txt" in os.read(watch, 4096)
model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(4):
    model(torch.randn(8192, 1024, device="cuda")).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    with FileLock("history.lock"):
        open("history.jsonl", "a").write("{}\n")
os.remove("train.pid")

assert open("metrics.csv").read().endswith("9,0.1\n") and open("raw.bin", "rb").read(6) == b"locked"
assert len(open("history.jsonl").readlines()) == 5 and os.path.exists("data/renamed.txt")
print("READ BACK OK")
