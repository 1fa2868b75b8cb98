"""Overwrites npy and npz files and changes features.npy in place through a memmap opened r+."""
import numpy as np
import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

features = np.load("features.npy", mmap_mode="r+")
first = features[0].copy()
assert first.any() and not (first == 7).any(), "this row was written before"
predictions = np.lib.format.open_memmap("output/predictions.npy", mode="w+", dtype=np.float32, shape=(1024, 64))
model = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    rows = slice(128 * step, 128 * (step + 1))
    x = torch.from_numpy(np.array(features[rows])).cuda().repeat(512, 1)
    y = model(x)
    y.pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    predictions[rows] = y[:128].detach().cpu().numpy()
    features[rows] = 7
    features.flush()
    np.save("losses.npy", np.arange(step + 1))
    np.savez("arrays.npz", a=np.ones(3), step=step)
    np.savez_compressed("output/small.npz", a=np.full(10, step))
    np.savetxt("metrics.csv", np.eye(2), delimiter=",")
raw = np.memmap("raw.bin", dtype=np.uint8, mode="r+")
raw[::4096] = 255
del raw, features, predictions

assert (np.load("features.npy") == 7).all()
assert np.load("output/predictions.npy").shape == (1024, 64)
assert np.load("arrays.npz")["step"] == 7 and len(np.load("losses.npy")) == 8
assert (np.fromfile("raw.bin", np.uint8)[::4096] == 255).all()
print("READ BACK OK")
