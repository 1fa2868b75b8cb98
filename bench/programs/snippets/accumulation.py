"""Accumulation as 001 and 002 have it: scaled, a step for every fourth batch."""

import torch
from rest import loader, resnet
from torch import nn

model, criterion = resnet(), nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters())
train_loader = loader(128)
accumulation_steps = 4
optimizer.zero_grad()
for i, (data, target) in enumerate(train_loader):
    data, target = data.cuda(), target.cuda()
    output = model(data)
    loss = criterion(output, target)
    loss = loss / accumulation_steps
    loss.backward()
    if (i + 1) % accumulation_steps == 0:
        optimizer.step()
        optimizer.zero_grad()
