"""cause: size/activations at line 16
memory: 4GiB 6GiB
"""
import torch
from torch import nn
from torchvision.models import resnet50

device = torch.device("cuda")
model = resnet50(num_classes=100).to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for step in range(5):
    images = torch.randn(96, 3, 224, 224, device=device)
    labels = torch.randint(0, 100, (96,), device=device)
    out = model(images)  # here
    loss = criterion(out, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
