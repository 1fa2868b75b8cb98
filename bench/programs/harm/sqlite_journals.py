"""Inserts into two data bases, one with a rollback journal and one in WAL mode with an unfinished log; also from the shell."""
import shutil
import sqlite3
import subprocess

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

old = sqlite3.connect("runs.db")
wal = sqlite3.connect("wal.db")
assert wal.execute("pragma journal_mode").fetchone() == ("wal",)
before = [it.execute("select count(*) from runs").fetchone()[0] for it in (old, wal)]
assert before == [50, 20], before
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(8):
    loss = model(torch.randn(8192, 512, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for base in (old, wal):
        with base:
            base.execute("insert into runs values(?, ?)", (step, loss.item()))
with old:
    old.execute("delete from runs where step < 10 and rowid <= 10")
wal.execute("pragma wal_checkpoint(truncate)")
old.execute("vacuum")
old.close()
rows = wal.execute("select count(*) from runs").fetchone()[0]
# Another connection beside the open one, in another process, sees the same through the shared memory of WAL.
if shutil.which("sqlite3"):
    done = subprocess.run(["sqlite3", "wal.db", "insert into runs values(99, 0.1); select count(*) from runs"], capture_output=True, text=True, check=True)
    assert int(done.stdout) == rows + 1, done
    assert wal.execute("select count(*) from runs").fetchone()[0] == rows + 1
assert rows == 28
assert sqlite3.connect("runs.db").execute("select count(*) from runs").fetchone() == (48,)
wal.close()
print("READ BACK OK")
