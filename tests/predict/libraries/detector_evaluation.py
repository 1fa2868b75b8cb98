"""A torchvision detector, trained and evaluated with torchmetrics' mean average precision by hand: what it found, box by box."""

import torch
import torchvision

model = torchvision.models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4).cuda()
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
targets = [{"boxes": torch.tensor([[10.0, 10.0, 90.0, 90.0]], device="cuda"), "labels": torch.tensor([1], device="cuda")} for _ in range(2)]
for _ in range(3):
    model.train()
    sum(model(list(torch.rand(2, 3, 320, 320, device="cuda")), targets).values()).backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.no_grad():
    for found, target in zip(model(list(torch.rand(2, 3, 320, 320, device="cuda"))), targets):
        kept = found["scores"] > 0.5
        overlap = torchvision.ops.box_iou(found["boxes"][kept], target["boxes"])
        best = overlap.max(0).values
        precision = (overlap.max(1).values > 0.5).float().mean()
        print(best.mean().item(), precision.item(), found["labels"][kept].unique(return_counts=True))
