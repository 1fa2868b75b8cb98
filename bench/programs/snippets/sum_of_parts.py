"""Accumulation as 000, example 3 has it: the loss is not scaled, so gradients are 16 times as large."""

import torch
from rest import deep
from torch import nn, optim

model = deep()
batch_size, accumulation_steps = 16384, 16
dataset = torch.randn(batch_size * accumulation_steps, 1000, device="cuda")
labels = torch.randint(0, 10, (len(dataset),), device="cuda")
optimizer = optim.Adam(model.parameters(), lr=0.001)
criterion = nn.CrossEntropyLoss()
for epoch in range(10):
    for i in range(0, len(dataset), batch_size * accumulation_steps):
        optimizer.zero_grad()
        for j in range(accumulation_steps):
            inputs = dataset[i + j * batch_size : i + (j + 1) * batch_size]
            outputs = model(inputs)
            loss = criterion(outputs, labels[i + j * batch_size : i + (j + 1) * batch_size])
            loss.backward()
        optimizer.step()
