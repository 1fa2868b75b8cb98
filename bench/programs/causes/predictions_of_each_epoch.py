"""cause: leak/results-kept at line 26
also right: growth/per-step
also right: line 24
memory: 2GiB
why: for a plot of how predictions change, each epoch's are kept on the device.
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 2048)).cuda()
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(TensorDataset(torch.randn(8192, 64), torch.randint(0, 2048, (8192,))), batch_size=1024)
history = []
for epoch in range(60):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        parts = []
        for x, _ in loader:
            out = model(x.cuda())
            if len(parts) < 8:
                parts.append(out.softmax(-1))  # here
    history.append(parts)
