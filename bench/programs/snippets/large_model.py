"""A model and a batch that are too large (000, example 1); the loop as it stands there, on the GPU."""

import torch
from rest import deep
from torch import nn, optim

model = deep()
batch_size = 32768
input_data = torch.randn(batch_size, 1000, device="cuda")
optimizer = optim.Adam(model.parameters(), lr=0.001)
criterion = nn.CrossEntropyLoss()
try:
    for epoch in range(10):
        output = model(input_data)
        loss = criterion(output, torch.randint(0, 10, (batch_size,), device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
except RuntimeError as e:
    print(f"CUDA out of memory error: {e}")
    raise
