"""A detector that is trained at another size every ten batches, drawn by chance from 320 to 960 (yolov3#75)."""
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, n=1600):
        self.n = n
        self.picture = torch.zeros(3, 640, 640, dtype=torch.uint8)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.picture, torch.tensor([i % 80, 0.5, 0.5, 0.2, 0.2])


def conv(inside, outside, stride=1):
    return nn.Sequential(nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.SiLU(inplace=True))


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = conv(width, width // 2), conv(width // 2, width)

    def forward(self, x):
        return x + self.second(self.first(x))


class Detector(nn.Module):
    def __init__(self, classes=80):
        super().__init__()
        stages, width = [conv(3, 32)], 32
        for blocks in (1, 2, 4, 4):
            stages += [conv(width, 2 * width, 2)] + [Residual(2 * width) for _ in range(blocks)]
            width *= 2
        self.stages = nn.Sequential(*stages)
        self.head = nn.Conv2d(width, 3 * (5 + classes), 1)

    def forward(self, x):
        return self.head(self.stages(x))


def resized(pictures, size):
    if size == pictures.shape[-1]:
        return pictures
    return nn.functional.interpolate(pictures, size=(size, size), mode="bilinear", align_corners=False)


def main(epochs=50, batch_size=12):
    model = Detector().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    loader = DataLoader(Pictures(), batch_size, shuffle=True, drop_last=True)
    size = 640
    for epoch in range(epochs):
        for i, (pictures, targets) in enumerate(loader):
            if i % 10 == 0:
                size = random.randrange(320, 960 + 1, 32)
            pictures = resized(pictures.cuda().float() / 255, size)
            out = model(pictures)
            loss = out.square().mean() + (out.mean((2, 3))[:, :5] - targets.cuda()).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, size, loss.item())


main()
