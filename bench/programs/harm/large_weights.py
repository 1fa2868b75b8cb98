"""Saves a model of 3 GiB twice by torch.save, then replaces one by the other: what is zero must not fill the disk."""
import os
import shutil

import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)


class Large(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ParameterList([nn.Parameter(torch.empty(8192, 8192, device="cuda")) for _ in range(12)])

    def forward(self, x):
        for block in self.blocks:
            x = torch.relu(x @ block)
        return x


model = Large()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    loss = model(torch.randn(64, 8192, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 3 == 0:
        torch.save(model.state_dict(), f"large-{step}.pt")
os.replace("large-3.pt", "checkpoints/last.pt")
shutil.move("checkpoints/last.pt", "checkpoints/best.pt")

size = 12 * 8192 * 8192 * 4
assert size < os.path.getsize("large-0.pt") < size + (1 << 20)
assert size < os.path.getsize("checkpoints/best.pt") < size + (1 << 20)
state = torch.load("checkpoints/best.pt", mmap=True)
assert state.keys() == model.state_dict().keys() and state["blocks.11"].shape == (8192, 8192)
print("blocks on the disk:", os.stat("large-0.pt").st_blocks * 512 >> 20, "MiB")
print("READ BACK OK")
