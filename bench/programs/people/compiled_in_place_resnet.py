"""torchvision's ResNet-34, compiled in place (`model.compile()`), a last batch that is smaller, validation without gradients, a scheduler."""

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = torchvision.models.resnet34(num_classes=200).cuda()
model.compile()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=200)
data = TensorDataset(torch.rand(1100, 3, 160, 160), torch.randint(200, (1100,)))
held = TensorDataset(torch.rand(160, 3, 160, 160), torch.randint(200, (160,)))
criterion = nn.CrossEntropyLoss()
for epoch in range(4):
    model.train()
    for images, labels in DataLoader(data, 128, shuffle=True):
        optimizer.zero_grad()
        loss = criterion(model(images.cuda()), labels.cuda())
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()
    right = 0
    with torch.no_grad():
        for images, labels in DataLoader(held, 80):
            right += (model(images.cuda()).argmax(1).cpu() == labels).sum().item()
    print(epoch, loss.item(), right / len(held))
