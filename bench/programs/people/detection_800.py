"""Faster R-CNN as in torchvision's references: pictures of different sizes, brought to 800 pixels by the model itself."""

import random

import torch
import torchvision
from torch.utils.data import DataLoader, Dataset

random.seed(0)
torch.manual_seed(0)


class Street(Dataset):
    def __init__(self, n):
        self.sizes = [random.choice([(480, 640), (640, 480), (426, 640), (500, 375), (612, 612)]) for _ in range(n)]

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, i):
        h, w = self.sizes[i]
        n = random.randint(1, 15)
        xy = torch.rand(n, 2) * torch.tensor([w * 0.6, h * 0.6])
        wh = 10 + torch.rand(n, 2) * torch.tensor([w * 0.3, h * 0.3])
        target = {"boxes": torch.cat([xy, xy + wh], 1), "labels": torch.randint(1, 91, (n,)), "image_id": i}
        return torch.rand(3, h, w), target


def collate_fn(batch):
    return tuple(zip(*batch))


def train_one_epoch(model, optimizer, loader, device, warmup):
    model.train()
    for images, targets in loader:
        images = [im.to(device) for im in images]
        targets = [{k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in t.items()} for t in targets]
        loss_dict = model(images, targets)
        losses = sum(loss for loss in loss_dict.values())
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()
        warmup.step()


device = torch.device("cuda")
model = torchvision.models.detection.fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=91, min_size=800, max_size=1333)
model.to(device)
params = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.SGD(params, lr=0.02, momentum=0.9, weight_decay=1e-4)
warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.001, total_iters=100)
loader = DataLoader(Street(160), batch_size=8, shuffle=True, collate_fn=collate_fn)
train_one_epoch(model, optimizer, loader, device, warmup)
