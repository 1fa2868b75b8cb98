"""Changes modes, times, sizes and attributes of files that were there: chmod, utime, truncate, fallocate, setxattr, chown."""
import os
import stat
import time

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

assert stat.S_IMODE(os.stat("secret.key").st_mode) == 0o400
model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    model(torch.randn(8192, 1024, device="cuda")).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    os.chmod("secret.key", 0o600)
    os.utime("precious.txt")
    os.truncate("train.log", 100 - step)
with open("secret.key", "a") as file:
    file.write("more\n")
os.chmod("empty", 0o700)
os.chmod("output/read-only.txt", 0o644)
open("output/read-only.txt", "a").write("written now\n")
os.utime("data/part-0.txt", ns=(1, 2))
os.utime("latest", ns=(5, 6), follow_symlinks=False)
os.chown("data/part-1.txt", os.getuid(), os.getgid())
os.truncate("raw.bin", 1 << 20)
with open("sparse.bin", "r+b") as file:
    os.posix_fallocate(file.fileno(), 0, 1 << 20)
    os.ftruncate(file.fileno(), 128 << 20)
    file.seek(0, 2)
    file.write(b"after the hole")
with open("output/room.bin", "wb") as file:
    os.posix_fallocate(file.fileno(), 0, 3 << 20)
try:
    os.setxattr("precious.txt", "user.seen", b"yes")
    assert os.getxattr("precious.txt", "user.seen") == b"yes"
except OSError as error:
    print("no attributes here:", error)

assert open("secret.key").read().endswith("more\n") and stat.S_IMODE(os.stat("secret.key").st_mode) == 0o600
assert abs(os.stat("precious.txt").st_mtime - time.time()) < 600
assert os.stat("data/part-0.txt").st_mtime_ns == 2 and os.lstat("latest").st_mtime_ns == 6
assert os.path.getsize("train.log") == 97 and os.path.getsize("raw.bin") == 1 << 20
assert os.path.getsize("sparse.bin") == (128 << 20) + 14 and os.path.getsize("output/room.bin") == 3 << 20
assert open("sparse.bin", "rb").read(4) == b"head"
print("READ BACK OK")
