"""cause: copies/double-buffer at line 28
also right: size/model-states
also right: line 22
memory: 2GiB
why: a checkpoint is loaded onto the device beside the model and its optimizer, and kept.
"""
import os
import tempfile

import torch
from torch import nn

model = nn.Sequential(*[nn.Linear(3000, 3000) for _ in range(12)]).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)


def train(steps):
    for step in range(steps):
        loss = model(torch.randn(64, 3000, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


train(2)
path = os.path.join(tempfile.mkdtemp(), "last.pt")
torch.save({"model": model.state_dict()}, path)
checkpoint = torch.load(path, map_location="cuda")  # here
model.load_state_dict(checkpoint["model"])
train(2)
