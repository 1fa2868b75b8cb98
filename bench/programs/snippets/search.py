"""Batch sizes tried one after the other until one does not run out (001), then training with it."""

import torch
from rest import Pictures, resnet
from torch import nn
from torch.utils.data import DataLoader

model, criterion, dataset = resnet(), nn.CrossEntropyLoss(), Pictures()
batch_sizes = [128, 64, 32, 16, 8]
for bs in batch_sizes:
    try:
        train_loader = DataLoader(dataset, batch_size=bs)
        model.train()
        data, target = next(iter(train_loader))
        output = model(data.cuda())
        loss = criterion(output, target.cuda())
        loss.backward()
        print(f"Batch size {bs} works!")
        break
    except RuntimeError as e:
        if "out of memory" in str(e):
            torch.cuda.empty_cache()
            print(f"Batch size {bs} - OOM")
            continue
        else:
            raise e
optimizer = torch.optim.AdamW(model.parameters())
for data, target in train_loader:
    optimizer.zero_grad()
    loss = criterion(model(data.cuda()), target.cuda())
    loss.backward()
    optimizer.step()
