"""Snapshots of a folder as hard links (`cp -al`), the newest by name swapped in with an exchange, folders that were there renamed over and into each other."""
import ctypes
import os
import shutil
import subprocess

import torch
from torch import nn

AT_FDCWD, RENAME_NOREPLACE, RENAME_EXCHANGE = -100, 1, 2
libc = ctypes.CDLL(None, use_errno=True)


def renameat2(old, new, flags):
    if libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags):
        raise OSError(ctypes.get_errno(), old)


run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)
model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
names = sorted(os.listdir("checkpoints"))
for step in range(4):
    model(torch.randn(8192, 1024, device="cuda")).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    subprocess.run(["cp", "-al", "checkpoints", f"snapshot-{step}"], check=True)
    torch.save({"step": step}, "checkpoints/last.new")
    os.replace("checkpoints/last.new", "checkpoints/last.pt")

inodes = {os.stat(f"{it}/best.pt").st_ino for it in ["checkpoints"] + [f"snapshot-{it}" for it in range(4)]}
assert len(inodes) == 1, inodes
assert os.stat("checkpoints/best.pt").st_nlink == 5, os.stat("checkpoints/best.pt").st_nlink
assert os.stat("hard.pt").st_nlink == 6 and os.path.samefile("hard.pt", "snapshot-2/step_000600.pt")
with open("snapshot-3/best.pt", "r+b") as file:  # one file, whatever name it is written by
    file.write(b"by one name")
assert open("checkpoints/best.pt", "rb").read(11) == b"by one name" == open("snapshot-0/best.pt", "rb").read(11)
assert torch.load("checkpoints/last.pt")["step"] == 3 and torch.load("snapshot-3/last.pt")["step"] == 2
assert "model" in torch.load("snapshot-0/last.pt")

try:
    renameat2("output", "scratch-new", RENAME_EXCHANGE)
except FileNotFoundError:
    os.mkdir("scratch-new")
open("scratch-new/fresh.txt", "w").write("fresh\n")
try:
    renameat2("output", "scratch-new", RENAME_EXCHANGE)
except OSError as error:
    print("SKIPPED in part: no exchange:", error)
    os.rename("output", "x"), os.rename("scratch-new", "output"), os.rename("x", "scratch-new")
assert os.listdir("output") == ["fresh.txt"] and open("scratch-new/old/deep/result.bin", "rb").read(1)
try:
    renameat2("output", "data", RENAME_NOREPLACE)
    raise SystemExit("it replaced a folder")
except FileExistsError:
    pass
try:
    os.rename("output", "data")
    raise SystemExit("it replaced a folder that was not empty")
except OSError as error:
    assert error.errno in (39, 17), error
os.rename("scratch-new/old", "empty")  # over an empty folder that was there
assert os.listdir("empty") == ["deep"]
os.rename("empty/deep", "data/deep")
os.rename("data", "output/data")
assert sorted(os.listdir("output/data")) == ["deep", "part-0.txt", "part-1.txt", "part-2.txt"]
os.rename("repo", "output/data/repo")
done = subprocess.run(["git", "status", "--short"], cwd="output/data/repo", capture_output=True, text=True)
assert done.returncode == 0 and done.stdout == "", done
for step in range(3):
    shutil.rmtree(f"snapshot-{step}")
assert os.stat("checkpoints/best.pt").st_nlink == 2 and sorted(os.listdir("checkpoints")) == names
os.rename("snapshot-3", "checkpoints-2")
os.chdir("output/data/deep")
os.rename("../../../checkpoints-2", "moved")
assert os.path.samefile("moved/best.pt", "../../../checkpoints/best.pt")
print("READ BACK OK")
