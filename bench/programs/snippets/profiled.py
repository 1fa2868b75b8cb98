"""The loop under torch's profiler with its memory (001)."""

import torch
from rest import deep
from torch import nn
from torch.profiler import ProfilerActivity, profile

model, criterion = deep(), nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters())
data = torch.randn(16384, 1000, device="cuda")
target = torch.randint(0, 10, (len(data),), device="cuda")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True, record_shapes=True) as prof:
    for _ in range(4):
        loss = criterion(model(data), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(prof.key_averages().table(sort_by="cuda_memory_usage", row_limit=10))
prof.export_chrome_trace("trace.json")
