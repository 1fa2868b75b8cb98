"""Metric learning: every triplet of anchor, positive, negative that the labels allow, and a queue that is filled in turn."""
import os
import torch
from torch import nn

device = os.environ.get("DEVICE", "cuda")
torch.manual_seed(14)
BATCH = 64
net = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 128)).to(device)
optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
for step in range(6):
    labels = torch.randint(0, 9 + step, (BATCH,)).to(device)
    x = nn.functional.normalize(net(torch.randn(BATCH, 512).to(device)), dim=1)
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    positives = same & ~torch.eye(BATCH, dtype=torch.bool, device=device)
    triples = positives.unsqueeze(2) & (~same).unsqueeze(1)
    anchor, positive, negative = torch.where(triples)
    margin = (x[anchor] - x[positive]).pow(2).sum(1) - (x[anchor] - x[negative]).pow(2).sum(1) + 0.2
    classes, counts = labels.unique(return_counts=True)
    centers = torch.stack([x[labels == it].mean(0) for it in classes])
    loss = margin.relu().mean() + torch.cdist(x, centers).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("sizes", anchor.numel(), classes.numel(), int(counts.max()))
