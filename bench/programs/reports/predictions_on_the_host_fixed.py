"""Predictions of a test set, joined on the CPU. No graph is made."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).cuda()
model.eval()
labels = torch.empty(0, 10)
torch.set_grad_enabled(False)
for i in range(2000):
    pictures = torch.rand(16, 3, 96, 96).cuda()
    labels = torch.cat((labels, model(pictures).cpu()))
print(labels.argmax(1).bincount())
