"""Writes by the rarer calls: pwritev, sendfile, copy_file_range, splice, reopened descriptors, odd names, fsync of a folder, exec."""
import os
import sys

if len(sys.argv) == 1:  # the first half prepares, then becomes the second half
    run = int(open("count.txt").read()) + 1
    open("count.txt", "w").write(f"{run}\n")
    print("RUN", run, flush=True)
    open("prepared.txt", "w").write("by the first half\n")
    os.environ["FIRST"] = str(run)
    os.execv(sys.executable, [sys.executable, __file__, "second"])

import torch
from torch import nn

assert open("prepared.txt").read() == "by the first half\n" and open("count.txt").read() == f"{os.environ['FIRST']}\n"
raw = os.open("raw.bin", os.O_RDWR)
assert os.pwritev(raw, [b"one", b"two"], 10) == 6
source = os.open("precious.txt", os.O_RDONLY)
target = os.open("output/sent.txt", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
size = os.fstat(source).st_size
assert os.sendfile(target, source, 0, size) == size
copy = os.open("output/ranged.txt", os.O_RDWR | os.O_CREAT)
try:
    assert os.copy_file_range(source, copy, size, 0, 0) == size
except OSError as error:
    print("no copy_file_range here:", error)
    os.write(copy, os.pread(source, size, 0))
ours, theirs = os.pipe()
os.write(theirs, b"through a pipe")
os.splice(ours, raw, 14, offset_dst=100)
again = os.open(f"/proc/self/fd/{os.open('best.txt', os.O_RDONLY)}", os.O_WRONLY | os.O_TRUNC)
os.write(again, b"0.5\n")
for name in ("notes and étude/two\nlines", b"notes and \xc3\xa9tude/not-utf8-\xff", "-rf", "x" * 255):
    with open(name, "a") as file:
        file.write("odd\n")
folder = os.open("checkpoints", os.O_RDONLY)
model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(4):
    model(torch.randn(8192, 1024, device="cuda")).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    with open("checkpoints/last.pt", "r+b") as file:  # in place, without making it shorter
        file.write(step.to_bytes(4, "little"))
        os.fsync(file.fileno())
    os.fsync(folder)

assert os.pread(raw, 6, 10) == b"onetwo" and os.pread(raw, 14, 100) == b"through a pipe"
assert open("raw.bin", "rb").read(114)[100:] == b"through a pipe"
assert open("output/sent.txt").read() == open("output/ranged.txt").read() == open("precious.txt").read()
assert open("best.txt").read() == "0.5\n" and os.path.exists("-rf") and os.path.exists("x" * 255)
assert open("notes and étude/two\nlines").read() == "a newline in the name\nodd\n"
assert open("checkpoints/last.pt", "rb").read(4) == (3).to_bytes(4, "little") and os.path.getsize("checkpoints/last.pt") > 10**6
print("READ BACK OK")
