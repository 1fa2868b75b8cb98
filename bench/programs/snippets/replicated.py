"""`nn.DataParallel` around the model (001), with as many devices as there are."""

import torch
from rest import loader, resnet
from torch import nn

model, criterion = nn.DataParallel(resnet()), nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters())
for data, target in loader(112):
    data, target = data.cuda(), target.cuda()
    optimizer.zero_grad()
    loss = criterion(model(data), target)
    loss.backward()
    optimizer.step()
