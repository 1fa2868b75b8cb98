"""DenseNet with Nesterov momentum, random erasing on the device, a loader in the same process, accuracy each ten steps."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.models import densenet121


class Photos(Dataset):
    def __len__(self):
        return 2000

    def __getitem__(self, n):
        return torch.full((3, 224, 224), n % 7, dtype=torch.float32), n % 100


torch.manual_seed(0)
model = densenet121(num_classes=100).cuda()
decay = [p for p in model.parameters() if p.ndim > 1]
rest = [p for p in model.parameters() if p.ndim <= 1]
optimizer = torch.optim.SGD([{"params": decay, "weight_decay": 1e-4}, {"params": rest}], lr=0.1, momentum=0.9, nesterov=True)
criterion = nn.CrossEntropyLoss()
for epoch in range(2):
    for n, (images, labels) in enumerate(DataLoader(Photos(), batch_size=64, shuffle=True, drop_last=True)):
        images, labels = images.cuda(), labels.cuda()
        images[:, :, 40:90, 60:120] = torch.rand(len(images), 3, 50, 60, device="cuda")
        logits = model(images)
        loss = criterion(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if n % 10 == 0:
            print(epoch, n, loss.item(), (logits.argmax(1) == labels).float().mean().item())
