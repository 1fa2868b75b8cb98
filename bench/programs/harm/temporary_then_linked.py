"""Writes to NamedTemporaryFile and links it into place, O_TMPFILE with linkat, mkstemp in the same folder, renameat2 with exchange."""
import ctypes
import os
import tempfile

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

libc = ctypes.CDLL(None, use_errno=True)
model = nn.Linear(512, 512).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(5):
    loss = model(torch.randn(32768, 512, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with tempfile.NamedTemporaryFile(dir="checkpoints", prefix=".save-") as file:
        torch.save({"model": model.state_dict(), "step": step}, file)
        file.flush()
        if os.path.exists("checkpoints/linked.pt"):
            os.remove("checkpoints/linked.pt")
        os.link(file.name, "checkpoints/linked.pt")
    handle, path = tempfile.mkstemp(dir=".", suffix=".json")
    with open(handle, "w") as file:
        file.write(f'{{"step": {step}}}')
    os.chmod(path, 0o644)
    os.replace(path, "metrics.json")
nameless = None
try:
    nameless = os.open("output", os.O_TMPFILE | os.O_RDWR, 0o600)
except OSError as error:
    print("no files without a name here:", error)
if nameless is not None:
    os.write(nameless, b"first without a name")
    os.link(f"/proc/self/fd/{nameless}", "output/named.bin", src_dir_fd=0)
    assert open("output/named.bin", "rb").read() == b"first without a name"
one, two = open("precious.txt").read(), open("input.txt").read()
if libc.renameat2(-100, b"precious.txt", -100, b"input.txt", 2) == 0:  # exchange the two
    assert open("precious.txt").read() == two and open("input.txt").read() == one
else:
    print("no exchange here:", os.strerror(ctypes.get_errno()))
spill = tempfile.SpooledTemporaryFile(max_size=100)
spill.write(b"x" * 10_000)
spill.seek(0)

assert len(spill.read()) == 10_000
assert torch.load("checkpoints/linked.pt")["step"] == 4 and os.stat("checkpoints/linked.pt").st_nlink == 1
assert open("metrics.json").read() == '{"step": 4}'
assert not [it for it in os.listdir("checkpoints") if it.startswith(".save-")]
print("READ BACK OK")
