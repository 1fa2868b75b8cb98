"""`del` and `empty_cache` in each step (003, example 2)."""

import torch
from rest import loader, resnet
from torch import nn

model, loss_fn = resnet(), nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters())
for inputs, targets in loader(128):
    inputs, targets = inputs.cuda(), targets.cuda()
    with torch.no_grad():
        inputs = (inputs - inputs.mean()) / (inputs.std() + 1e-6)
    optimizer.zero_grad()
    outputs = model(inputs)
    loss = loss_fn(outputs, targets)
    loss.backward()
    optimizer.step()
    del inputs, outputs, targets
    torch.cuda.empty_cache()
