"""A ViT, its forward pass compiled, fed by workers that cut and flip pictures; evaluates after every 12 steps."""

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import models, transforms


class Photos(Dataset):
    def __init__(self, n, train):
        size = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ColorJitter(0.2, 0.2)]
        size = size if train else [transforms.Resize(256), transforms.CenterCrop(224)]
        self.transform = transforms.Compose([*size, transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.5] * 3)])
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        pixels = np.random.default_rng(i).integers(0, 255, (300, 400, 3), dtype=np.uint8)
        return self.transform(Image.fromarray(pixels)), i % 200


def main():
    torch.manual_seed(3)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = models.vit_b_16(num_classes=200).cuda()
    forward = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    train = DataLoader(Photos(2400, True), 96, shuffle=True, num_workers=3, pin_memory=True, persistent_workers=True, drop_last=True)
    val = DataLoader(Photos(192, False), 96, num_workers=2)
    step = 0
    for epoch in range(2):
        for images, labels in train:
            images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
            loss = criterion(forward(images), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step % 12 == 0:
                model.eval()
                right = 0
                with torch.no_grad():
                    for images, labels in val:
                        right += (model(images.cuda()).argmax(1).cpu() == labels).sum().item()
                model.train()
                print(step, loss.item(), right / len(val.dataset))


if __name__ == "__main__":
    main()
