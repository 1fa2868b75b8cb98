"""Memory printed in the loop (001)."""

import torch
from rest import loader, resnet
from torch import nn


def print_gpu_memory():
    if torch.cuda.is_available():
        allocated = torch.cuda.memory_allocated() / 1024**3
        reserved = torch.cuda.memory_reserved() / 1024**3
        max_allocated = torch.cuda.max_memory_allocated() / 1024**3
        print(f"Allocated: {allocated:.2f} GB")
        print(f"Reserved:  {reserved:.2f} GB")
        print(f"Max Allocated: {max_allocated:.2f} GB")
        total = torch.cuda.get_device_properties(0).total_memory / 1024**3
        print(f"Total GPU Memory: {total:.2f} GB")
        print(f"Utilization: {allocated / total * 100:.1f}%")


model, criterion = resnet(), nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(2):
    for batch_idx, (data, target) in enumerate(loader(112)):
        loss = criterion(model(data.cuda()), target.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if batch_idx % 100 == 0:
            print_gpu_memory()
