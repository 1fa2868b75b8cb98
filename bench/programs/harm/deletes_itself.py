"""Deletes its own file and its own input once they are read, as jobs that clean up do, and goes on without them."""
import os
import sys

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

rows = open("input.txt").read().splitlines()
assert len(rows) == 40
me = os.path.abspath(__file__)
with open(me) as file:
    text = file.read()
kept = open("raw.bin", "rb")
os.remove(me)
os.remove("input.txt")
os.remove("raw.bin")
os.rename("precious.txt", "precious.txt.used")
open("config.yaml", "w").close()
model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(5):
    loss = model(torch.randn(8192, 1024, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

assert not os.path.exists(me) and not os.path.exists("input.txt") and not os.path.exists("precious.txt")
assert len(kept.read()) == 4 << 20  # open since before it was deleted
assert os.path.getsize("config.yaml") == 0
with open(me, "w") as file:
    file.write(text + "# once more\n")
assert open(sys.argv[0]).read() == text + "# once more\n"
print("READ BACK OK")
