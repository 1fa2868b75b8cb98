"""Rebuilds what is older than its source, by mtime, as make does: nothing at first, then after a touch; also with make itself."""
import os
import shutil
import subprocess
import time

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)


def build():
    """Whether the product had to be made."""
    if os.stat("build/product.txt").st_mtime_ns > os.stat("build/source.txt").st_mtime_ns:
        return False
    text = open("build/source.txt").read().upper()
    open("build/product.txt", "w").write(text)
    return True


assert not build(), "the product was older than its source: somebody touched it"
then = os.stat("build/source.txt").st_mtime_ns
assert then % 10**9, "the fraction of the time was lost"
model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(model.parameters())
made = []
for step in range(5):
    loss = model(torch.randn(8192, 1024, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 2:
        with open("build/source.txt", "a") as file:
            file.write(f"step {step}\n")
        time.sleep(0.02)
    made.append(build())
if shutil.which("make"):
    open("build/Makefile", "w").write("product.txt: source.txt\n\ttr a-z A-Z < source.txt > product.txt; echo made\n")
    again = subprocess.run(["make", "-s", "-C", "build"], check=True, capture_output=True, text=True).stdout
    assert "made" not in again, again
    os.utime("build/source.txt", ns=(time.time_ns() + 10**9,) * 2)
    assert "made" in subprocess.run(["make", "-s", "-C", "build"], check=True, capture_output=True, text=True).stdout

assert made == [False, True, False, True, False], made
assert open("build/product.txt").read() == "ONE\nTWO\nSTEP 1\nSTEP 3\n"
assert os.stat("build/source.txt").st_mtime_ns > then
print("READ BACK OK")
