"""torchvision's RetinaNet as in its references: lists of pictures and boxes, SGD, warm-up."""

import torch
import torchvision
from torch.utils.data import DataLoader, Dataset


class Boxes(Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        n = int(torch.randint(1, 12, (1,), generator=g))
        corner = torch.rand(n, 2, generator=g) * 400
        boxes = torch.cat([corner, corner + 20 + torch.rand(n, 2, generator=g) * 150], 1)
        return torch.rand(3, 600, 800), {"boxes": boxes, "labels": torch.randint(1, 20, (n,), generator=g)}


model = torchvision.models.detection.retinanet_resnet50_fpn_v2(num_classes=20, weights=None, weights_backbone=None, trainable_backbone_layers=5).cuda()
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01, momentum=0.9, weight_decay=1e-4)
warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.001, total_iters=10)
loader = DataLoader(Boxes(), batch_size=6, shuffle=True, collate_fn=lambda rows: tuple(zip(*rows)))
model.train()
for images, targets in loader:
    images = [it.cuda() for it in images]
    targets = [{k: v.cuda() for k, v in it.items()} for it in targets]
    losses = model(images, targets)
    loss = sum(losses.values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    warmup.step()
    print({k: round(v.item(), 3) for k, v in losses.items()})
