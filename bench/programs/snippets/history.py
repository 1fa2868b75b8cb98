"""A snapshot dumped where memory ran out (001)."""

import torch
from rest import deep
from torch import nn

model, criterion = deep(), nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters())
data = torch.randn(20480, 1000, device="cuda")
target = torch.randint(0, 10, (len(data),), device="cuda")
torch.cuda.memory._record_memory_history()
try:
    for _ in range(8):
        loss = criterion(model(data), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
except RuntimeError as e:
    if "out of memory" in str(e):
        torch.cuda.memory._dump_snapshot("oom_snapshot.pickle")
    raise
finally:
    torch.cuda.memory._record_memory_history(enabled=None)
