"""A ResNet-18, with its batch-norm; one batch is larger."""

import torch
from torch import nn

from planted import STEPS, ended, size

from torchvision.models import resnet18

model = resnet18().cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
criterion = nn.CrossEntropyLoss()
for step in range(STEPS):
    n = size(step, 32, 160)
    x, y = torch.randn(n, 3, 224, 224, device="cuda"), torch.randint(0, 1000, (n,), device="cuda")
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    ended(step, loss, model)
