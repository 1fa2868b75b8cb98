"""Metrics on the CPU and evaluation under `no_grad`, as 001 has them."""

import torch
from rest import loader, resnet
from torch import nn

model, criterion = resnet(), nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step, (data, target) in enumerate(loader(128)):
    data, target = data.cuda(), target.cuda()
    optimizer.zero_grad()
    output = model(data)
    loss = criterion(output, target)
    loss.backward()
    optimizer.step()
    pred = output.argmax(dim=1).cpu()
    accuracy = (pred == target.cpu()).float().mean()
    with torch.no_grad():
        prediction = model(data).detach()
