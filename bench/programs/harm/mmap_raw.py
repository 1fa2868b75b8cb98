"""Changes raw.bin in place through mmap, from this process and from a child that maps it too; grows another file by mmap.resize."""
import mmap
import os

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

file = open("raw.bin", "r+b")
view = mmap.mmap(file.fileno(), 0)
assert view[:4] != b"MINE", "somebody wrote here before"
# A reader that was open before the first write has to see it: both map one file.
reader = mmap.mmap(os.open("raw.bin", os.O_RDONLY), 0, prot=mmap.PROT_READ)
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(6):
    x = torch.frombuffer(view, dtype=torch.uint8, count=512 * 512, offset=512).reshape(512, 512).float().cuda()
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    view[:4] = b"MINE"
    view[100 + step : 101 + step] = bytes([step])
    view.flush()
pid = os.fork()
if pid == 0:
    view[200:205] = b"child"
    os._exit(0)
os.waitpid(pid, 0)
grown = open("output/grown.bin", "w+b")
grown.write(b"x" * 4096)
grown.flush()
large = mmap.mmap(grown.fileno(), 4096)
large.resize(1 << 20)
large[-3:] = b"end"
large.flush()

assert open("raw.bin", "rb").read(4) == b"MINE" and view[200:205] == b"child"
assert open("raw.bin", "rb").read(106)[100:] == bytes(range(6))
private = mmap.mmap(os.open("raw.bin", os.O_RDONLY), 0, access=mmap.ACCESS_COPY)
private[:4] = b"COPY"
assert view[:4] == b"MINE"
assert os.path.getsize("output/grown.bin") == 1 << 20 and open("output/grown.bin", "rb").read()[-3:] == b"end"
print("reader opened before:", reader[:4])
print("READ BACK OK")
