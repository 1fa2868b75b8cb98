"""An experiment data base in two processes at once (WAL, immediate transactions, vacuum, backup) and memory maps of old and new arrays, grown, shrunk and synced."""
import mmap
import os
import sqlite3
import subprocess
import sys

import numpy
import torch
from torch import nn

CHILD = """
import sqlite3, sys
base = sqlite3.connect("wal.db", timeout=20)
for it in range(20):
    base.execute("begin immediate")
    base.execute("insert into runs values(?, ?)", (1000 + it, 0.25))
    base.commit()
print(base.execute("select count(*) from runs where step >= 1000").fetchone()[0])
"""
run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

base = sqlite3.connect("wal.db", timeout=20, isolation_level=None)
assert base.execute("select count(*) from runs").fetchone()[0] == 20
child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True)
rows = numpy.lib.format.open_memmap("features.npy", mode="r+")
model = nn.Linear(64, 64).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(12):
    batch = torch.from_numpy(rows[step * 64 : step * 64 + 64].copy()).cuda()
    loss = model(batch).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    rows[step * 64 : step * 64 + 64] = step
    base.execute("insert into runs values(?, ?)", (500 + step, loss.item()))
rows.flush()
said, _ = child.communicate(timeout=60)
assert child.returncode == 0 and int(said) == 20, said
assert base.execute("select count(*) from runs").fetchone()[0] == 52
copy = sqlite3.connect("backup.db")
base.backup(copy)
copy.execute("vacuum")
assert copy.execute("pragma integrity_check").fetchone()[0] == "ok"
base.close()
assert numpy.load("features.npy")[64 * 11, 0] == 11 and numpy.load("features.npy", mmap_mode="r")[0, 0] == 0

made = numpy.memmap("activations.dat", dtype=numpy.float32, mode="w+", shape=(256, 4096))
made[:] = 3
made.flush()
del made
os.truncate("activations.dat", 8 * 4096 * 4)
assert numpy.memmap("activations.dat", dtype=numpy.float32, mode="r").shape == (8 * 4096,)
with open("raw.bin", "r+b") as file:
    size = os.path.getsize("raw.bin")
    os.posix_fallocate(file.fileno(), size, 1 << 20)
    with mmap.mmap(file.fileno(), 0) as view:
        view[-4:] = b"last"
        view.flush()
        view.resize(size)
    private = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    private[:4] = b"mine"
    private.close()
assert os.path.getsize("raw.bin") == size and open("raw.bin", "rb").read(4) != b"mine"
with open("sparse.bin", "r+b") as file:
    file.seek(32 << 20)
    file.write(b"in the hole")
    assert os.lseek(file.fileno(), 0, os.SEEK_HOLE) <= 32 << 20
assert os.path.getsize("sparse.bin") == 64 << 20
print("READ BACK OK")
