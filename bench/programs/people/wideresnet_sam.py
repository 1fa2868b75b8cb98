"""Wide ResNet on small images with SAM: each step goes forward and backward twice, with labels smoothed and random crops on the GPU."""
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(i), nn.Conv2d(i, o, 3, stride, 1, bias=False)
        self.bn2, self.conv2 = nn.BatchNorm2d(o), nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.short = nn.Conv2d(i, o, 1, stride, bias=False) if i != o else None

    def forward(self, x):
        y = F.relu(self.bn1(x))
        short = self.short(y) if self.short is not None else x
        return short + self.conv2(F.dropout(F.relu(self.bn2(self.conv1(y))), 0.1, self.training))


class WideResNet(nn.Module):
    def __init__(self, depth=28, wide=8, classes=100):
        super().__init__()
        n, widths = (depth - 4) // 6, [16, 16 * wide, 32 * wide, 64 * wide]
        self.stem = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.groups = nn.Sequential(*[
            nn.Sequential(*[Block(i if k == 0 else o, o, stride if k == 0 else 1) for k in range(n)])
            for i, o, stride in zip(widths, widths[1:], (1, 2, 2))
        ])
        self.bn, self.head = nn.BatchNorm2d(widths[-1]), nn.Linear(widths[-1], classes)

    def forward(self, x):
        return self.head(F.relu(self.bn(self.groups(self.stem(x)))).mean((2, 3)))


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base = base(self.param_groups, **kwargs)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self):
        norm = torch.stack([p.grad.norm() for g in self.param_groups for p in g["params"]]).norm()
        for g in self.param_groups:
            for p in g["params"]:
                e = p.grad * (g["rho"] / (norm + 1e-12))
                p.add_(e)
                self.state[p]["e"] = e
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for g in self.param_groups:
            for p in g["params"]:
                p.sub_(self.state[p]["e"])
        self.base.step()
        self.zero_grad()


torch.manual_seed(0)
images, labels = torch.randint(0, 256, (5000, 3, 32, 32), dtype=torch.uint8), torch.randint(0, 100, (5000,))
images, labels = images.cuda(), labels.cuda()
model = WideResNet().cuda()
optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
for epoch in range(4):
    order = torch.randperm(5000, device="cuda")
    for at in range(0, 5000 - 255, 256):
        picked = order[at : at + 256]
        x = F.pad(images[picked].float().div_(255), (4, 4, 4, 4))
        i, j = torch.randint(0, 9, (2,)).tolist()
        x, y = x[:, :, i : i + 32, j : j + 32], labels[picked]
        loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        loss.backward()
        optimizer.first_step()
        F.cross_entropy(model(x), y, label_smoothing=0.1).backward()
        optimizer.second_step()
    print(epoch, loss.item())
