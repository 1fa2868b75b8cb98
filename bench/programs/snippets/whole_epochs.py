"""Accumulation over whole passes of the loader (003, example 3)."""

import torch
from rest import Pictures, resnet
from torch import nn

model, loss_fn = resnet(), nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
few = torch.utils.data.Subset(Pictures(), range(256))
train_loader = torch.utils.data.DataLoader(few, batch_size=128)
accumulation_steps = 4
for epoch in range(4):
    optimizer.zero_grad()
    for step in range(accumulation_steps):
        for inputs, targets in train_loader:
            outputs = model(inputs.cuda())
            loss = loss_fn(outputs, targets.cuda())
            loss = loss / accumulation_steps
            loss.backward()
    optimizer.step()
    optimizer.zero_grad()
