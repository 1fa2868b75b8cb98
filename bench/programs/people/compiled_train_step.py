"""The loss is computed by a function that is compiled, which calls the model; a residual network of its own, channels last, bf16, clipping."""

import torch
from torch import nn
from torch.nn import functional as F


class Unit(nn.Module):
    def __init__(self, a, b, stride):
        super().__init__()
        self.c1, self.n1 = nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b)
        self.c2, self.n2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b)
        self.skip = nn.Conv2d(a, b, 1, stride, bias=False) if a != b or stride != 1 else nn.Identity()

    def forward(self, x):
        return F.relu(self.n2(self.c2(F.relu(self.n1(self.c1(x))))) + self.skip(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 3, 1, 1)
        sizes = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1)]
        self.units = nn.Sequential(*(Unit(*it) for it in sizes))
        self.head = nn.Linear(256, 100)

    def forward(self, x):
        return self.head(self.units(self.stem(x)).mean((2, 3)))


torch.manual_seed(0)
model = Net().cuda().to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)


@torch.compile
def loss_of(images, labels):
    with torch.autocast("cuda", torch.bfloat16):
        return F.cross_entropy(model(images), labels, label_smoothing=0.1)


for step in range(60):
    images = torch.rand(192, 3, 96, 96).cuda(non_blocking=True).to(memory_format=torch.channels_last)
    labels = torch.randint(100, (192,)).cuda(non_blocking=True)
    loss = loss_of(images, labels)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if step % 20 == 0:
        print(step, loss.item())
