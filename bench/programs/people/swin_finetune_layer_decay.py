"""Fine-tunes a Swin transformer: a learning rate for each layer, mixup, label smoothing, an average of weights, evaluation each epoch."""
import torch
import torch.nn as nn
import torchvision
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randn(3, 224, 224, generator=g), int(torch.randint(0, 100, (), generator=g))


torch.manual_seed(0)
model = torchvision.models.swin_s(weights=None, num_classes=100).cuda()
groups = []
for depth, (name, p) in enumerate(model.named_parameters()):
    groups.append({"params": [p], "lr": 1e-4 * 0.98 ** (len(list(model.parameters())) - depth), "weight_decay": 0.0 if p.ndim < 2 else 0.05})
optimizer = torch.optim.AdamW(groups)
average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
for epoch in range(2):
    model.train()
    for x, y in DataLoader(Pictures(96 * 4), batch_size=96, shuffle=True, num_workers=2, drop_last=True):
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        lam, perm = 0.7, torch.randperm(len(x), device=x.device)
        out = model(lam * x + (1 - lam) * x[perm])
        loss = lam * criterion(out, y) + (1 - lam) * criterion(out, y[perm])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
    average.eval()
    right = 0
    with torch.no_grad():
        for x, y in DataLoader(Pictures(192), batch_size=192):
            right += (average(x.cuda()).argmax(1).cpu() == y).sum().item()
    print(epoch, loss.item(), right)
