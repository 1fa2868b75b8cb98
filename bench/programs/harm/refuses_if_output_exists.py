"""Refuses to start if its output folder exists, takes the next free version number for its logs, and saves every step."""
import os
import sys

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

OUT = "run_out"
try:
    os.makedirs(OUT)
except FileExistsError:
    sys.exit(f"{OUT} exists: pass --overwrite to train again")
with open(f"{OUT}/started", "x") as file:  # fails if somebody else made it
    file.write("yes\n")
version = 0
while os.path.exists(f"logs/version_{version}"):
    version += 1
os.makedirs(f"logs/version_{version}")
assert version == 0
model = nn.Sequential(*[nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)) for _ in range(4)]).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(6):
    x = torch.randn(16384, 512, device="cuda")
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.save({"step": step, "model": model[0].state_dict()}, f"{OUT}/step-{step}.pt")
open(f"{OUT}/finished", "w").close()

assert sorted(os.listdir(OUT)) == ["finished", "started", *(f"step-{it}.pt" for it in range(6))]
assert [torch.load(f"{OUT}/step-{it}.pt")["step"] for it in range(6)] == list(range(6))
print("READ BACK OK")
