"""Writes in `finally`, in atexit, in a signal handler and in a child that outlives it: what a run that is stopped early still does."""
import atexit
import os
import signal
import subprocess
import sys

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(model.parameters())
seen = {"step": 0}


def save(name):
    torch.save({"model": model.state_dict(), **seen}, name)


def stopped(number, frame):
    save("checkpoints/interrupted.pt")
    if seen["step"] < 5:
        sys.exit(f"stopped by signal {number}")


signal.signal(signal.SIGTERM, stopped)
signal.signal(signal.SIGUSR1, lambda *_: save("checkpoints/requeue.pt"))
atexit.register(lambda: open("train.log", "a").write("ended\n"))
atexit.register(save, "checkpoints/last.pt")
# It outlives this process by two seconds and writes then.
late = "sleep 2; echo late >> precious.txt; rm -f best.txt; echo late > output/late.txt"
subprocess.Popen(["sh", "-c", late], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
try:
    for step in range(6):
        loss = model(torch.randn(8192, 1024, device="cuda")).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen["step"] = step
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGTERM)
finally:
    save("checkpoints/final.pt")
    open("metrics.json", "w").write('{"state": "ended"}')

for name in ("final", "requeue", "interrupted"):
    assert torch.load(f"checkpoints/{name}.pt")["step"] == 5, name
assert open("metrics.json").read() == '{"state": "ended"}'
print("READ BACK OK")
