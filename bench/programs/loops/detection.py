"""torchvision's RetinaNet on lists of images and of dicts; a dict of losses; warm-up by a LambdaLR."""

import torch
import torchvision
from torch.utils.data import DataLoader, Dataset


class Boxes(Dataset):
    def __init__(self, n, size):
        self.n, self.size = n, size
        self.images = torch.rand(16, 3, size, size)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        corner = torch.rand(4, 2, generator=g) * self.size / 2
        boxes = torch.cat([corner, corner + self.size / 4], 1)
        return self.images[i % len(self.images)], {"boxes": boxes, "labels": torch.randint(1, 21, (4,), generator=g)}


def main(batch=12, size=512, steps=20):
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torchvision.models.detection.retinanet_resnet50_fpn(
        weights=None, weights_backbone=None, num_classes=21, min_size=size, max_size=size
    ).to(device)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(params, lr=0.005, momentum=0.9)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda it: min(1.0, (it + 1) / 10))
    loader = DataLoader(Boxes(batch * steps, size), batch_size=batch, collate_fn=lambda it: tuple(zip(*it)))
    model.train()
    for images, targets in loader:
        images = [it.to(device) for it in images]
        targets = [{k: v.to(device) for k, v in t.items()} for t in targets]
        losses = model(images, targets)
        loss = sum(losses.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warmup.step()
    print({k: round(v.item(), 3) for k, v in losses.items()})


if __name__ == "__main__":
    main()
