"""Appends to archive.tar and archive.zip in place, and unpacks them over the files that are there."""
import io
import tarfile
import zipfile

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

model = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 256)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for step in range(5):
    loss = model(torch.randn(16384, 256, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    with zipfile.ZipFile("archive.zip", "a") as file:
        file.writestr(f"step-{step}.pt", buffer.getvalue())
    with tarfile.open("archive.tar", "a") as tar:
        info = tarfile.TarInfo(f"step-{step}.pt")
        info.size = len(buffer.getvalue())
        buffer.seek(0)
        tar.addfile(info, buffer)
with zipfile.ZipFile("archive.zip", "a") as file:
    file.writestr("data/part-0.txt", "from the archive\n")
    file.extract("data/part-0.txt")
with tarfile.open("archive.tar") as tar:
    tar.extractall("unpacked")
    tar.extract("precious.txt", ".")

names = [f"step-{it}.pt" for it in range(5)]
assert zipfile.ZipFile("archive.zip").namelist() == ["precious.txt", *names, "data/part-0.txt"]
assert tarfile.open("archive.tar").getnames() == ["precious.txt", *names]
assert open("data/part-0.txt").read() == "from the archive\n"
assert torch.load("unpacked/step-4.pt").keys() == model.state_dict().keys()
assert zipfile.ZipFile("archive.zip").testzip() is None
print("READ BACK OK")
