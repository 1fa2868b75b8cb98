"""Accumulation as 004, example 3 has it: `zero_grad` inside the loop over the parts, so that all but the last are lost."""

import torch
from rest import resnet
from torch import nn, optim

model, criterion = resnet(), nn.CrossEntropyLoss()
optimizer = optim.Adam(model.parameters())
batch_size, accumulation_steps = 112, 4
images = torch.randn(batch_size * accumulation_steps, 3, 224, 224).to("cuda")
labels = torch.randint(0, 10, (batch_size * accumulation_steps,)).to("cuda")
for _ in range(10):
    for i in range(0, batch_size * accumulation_steps, batch_size):
        optimizer.zero_grad()
        batch_images = images[i : i + batch_size]
        batch_labels = labels[i : i + batch_size]
        outputs = model(batch_images)
        loss = criterion(outputs, batch_labels)
        loss.backward()
        if (i // batch_size + 1) % accumulation_steps == 0:
            optimizer.step()
        else:
            with torch.no_grad():
                first = optimizer.param_groups[0]["params"][0]
                first.grad = first.grad / accumulation_steps
