"""Changes a shelf and a dbm file that were there: keys written, replaced and deleted, opened again between."""
import dbm
import shelve

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

with shelve.open("shelf") as shelf:
    assert sorted(shelf) == ["epoch", "names"] and shelf["epoch"] == 9, dict(shelf)
model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(6):
    loss = model(torch.randn(8192, 1024, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with shelve.open("shelf", writeback=True) as shelf:
        shelf["epoch"] = step
        shelf["names"].append(f"step {step}")
        shelf[f"loss {step}"] = loss.item()
with shelve.open("shelf") as shelf:
    del shelf["loss 0"]
with dbm.open("output/tokens", "c") as base:
    base[b"the"] = b"1"

with shelve.open("shelf", "r") as shelf:
    assert shelf["epoch"] == 5 and shelf["names"] == ["a", "b", *(f"step {it}" for it in range(6))]
    assert "loss 0" not in shelf and "loss 5" in shelf
with dbm.open("output/tokens") as base:
    assert base[b"the"] == b"1"
print("READ BACK OK")
