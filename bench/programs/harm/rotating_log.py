"""Logs through RotatingFileHandler, which renames old logs; several descriptors append to one log with O_APPEND; tees stdout."""
import logging
import logging.handlers
import os
import sys

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)


class Tee:
    def __init__(self, path):
        self.file, self.out = open(path, "a", buffering=1), sys.stdout

    def write(self, text):
        self.file.write(text)
        return self.out.write(text)

    def flush(self):
        self.out.flush()


sys.stdout = Tee("output/console.log")
log = logging.getLogger("train")
log.setLevel(logging.INFO)
log.addHandler(logging.handlers.RotatingFileHandler("train.log", maxBytes=2500, backupCount=2))
one, two = (os.open("history.jsonl", os.O_WRONLY | os.O_APPEND) for _ in range(2))
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(8):
    loss = model(torch.randn(8192, 512, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for part in range(20):
        log.info("step %d part %d loss %.6f", step, part, loss.item())
    os.write(one, b'{"by": 1}\n')
    os.write(two, b'{"by": 2}\n')
    print("step", step)

lines = open("history.jsonl").read().splitlines()
assert lines[0] == '{"step": 1, "loss": 1.0}' and lines[1:] == ['{"by": 1}', '{"by": 2}'] * 8, lines
for name in ("train.log", "train.log.1", "train.log.2"):
    assert 0 < os.path.getsize(name) <= 2500, name
assert "step 7 part 19" in open("train.log").read() + open("train.log.1").read()
assert open("output/console.log").read().splitlines()[-1] == "step 7"
print("READ BACK OK")
