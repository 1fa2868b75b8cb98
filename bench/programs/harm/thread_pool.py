"""A ThreadPool writes samples while the training runs: many small files, one shared file by pwrite, and replaced ones."""
import os
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

shared = os.open("raw.bin", os.O_RDWR)


def write(place):
    with open(f"samples/{place:03}.tmp", "w") as file:
        file.write(f"{place}\n" * 100)
    os.replace(f"samples/{place:03}.tmp", f"samples/{place % 50:03}.txt")
    os.pwrite(shared, place.to_bytes(4, "little"), 4 * place)
    return place


os.makedirs("samples")
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()
optimizer = torch.optim.Adam(model.parameters())
with ThreadPoolExecutor(8) as pool:
    waiting = []
    for step in range(6):
        loss = model(torch.randn(8192, 512, device="cuda")).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        waiting += [pool.submit(write, it) for it in range(50 * step, 50 * step + 50)]
    done = [it.result() for it in waiting]
os.fsync(shared)

assert done == list(range(300))
assert sorted(os.listdir("samples")) == [f"{it:03}.txt" for it in range(50)]
assert open("samples/007.txt").read().count("\n") == 100
assert open("raw.bin", "rb").read(1200) == b"".join(it.to_bytes(4, "little") for it in range(300))
print("READ BACK OK")
