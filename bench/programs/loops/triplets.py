"""Faces by triplets: the network is called three times a step, in half precision with a gradient scaler, hard negatives are mined."""

import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torch.amp import GradScaler, autocast

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
batch_size, image, dim, steps = 192, 160, 256, 10


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = torchvision.models.resnet50(num_classes=dim)

    def forward(self, x):
        return F.normalize(self.backbone(x), dim=1)


class Trainer:
    def __init__(self):
        self.model = Embedder().to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
        self.scaler = GradScaler(device.type)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, steps)
        self.loss = nn.TripletMarginLoss(margin=0.2, reduction="none")

    def batch(self):
        return [torch.randn(batch_size, 3, image, image, device=device) for _ in range(3)]

    def step(self):
        anchor, positive, negative = self.batch()
        self.optimizer.zero_grad()
        with autocast(device.type):
            a, p, n = self.model(anchor), self.model(positive), self.model(negative)
            distance = torch.cdist(a.float(), n.float())
            hardest = distance.argmin(1)
            loss = self.loss(a, p, n[hardest]).mean()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        return loss.item()

    def fit(self):
        self.model.train()
        return [self.step() for _ in range(steps)]


if __name__ == "__main__":
    Trainer().fit()
