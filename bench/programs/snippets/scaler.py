"""Mixed precision with autocast and GradScaler, as 001 and 002 have it."""

import torch
from rest import loader, resnet
from torch import nn
from torch.amp import GradScaler, autocast

model, criterion = resnet(), nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters())
scaler = GradScaler("cuda")
for epoch in range(2):
    for data, target in loader(192):
        data, target = data.cuda(), target.cuda()
        optimizer.zero_grad()
        with autocast("cuda"):
            output = model(data)
            loss = criterion(output, target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
