"""Mixed precision by its older names, gradients cleared last (002, example 3)."""

from rest import loader, resnet
from torch import nn, optim
from torch.cuda.amp import GradScaler, autocast

model, loss_function = resnet(), nn.CrossEntropyLoss()
optimizer = optim.AdamW(model.parameters())
scaler = GradScaler()
for batch, labels in loader(192):
    batch, labels = batch.cuda(), labels.cuda()
    with autocast():
        outputs = model(batch)
        loss = loss_function(outputs, labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
