"""Two views of each picture, a matrix of correlations that should be the identity: ResNet18, a wide projector, LARS written by hand."""
import torch
from torch import nn
from torchvision.models import resnet18

BATCH, WIDE = 160, 4096


class Lars(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, decay=1e-6):
        super().__init__(params, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                change = p.grad + group["decay"] * p
                if p.ndim > 1:
                    size, its = p.norm(), change.norm()
                    change = change * torch.where((size > 0) & (its > 0), 0.001 * size / its, torch.ones_like(size))
                kept = self.state[p].setdefault("mu", torch.zeros_like(p))
                kept.mul_(group["momentum"]).add_(change)
                p.add_(kept, alpha=-group["lr"])


torch.manual_seed(0)
body = resnet18()
body.fc = nn.Identity()
projector = nn.Sequential(nn.Linear(512, WIDE, bias=False), nn.BatchNorm1d(WIDE), nn.ReLU(), nn.Linear(WIDE, WIDE, bias=False), nn.BatchNorm1d(WIDE), nn.ReLU(), nn.Linear(WIDE, WIDE, bias=False))
model = nn.Sequential(body, projector).cuda()
norm = nn.BatchNorm1d(WIDE, affine=False).cuda()
optimizer = Lars(model.parameters(), lr=0.2)
for step in range(30):
    one, two = (torch.randn(BATCH, 3, 176, 176, device="cuda") for _ in range(2))
    c = norm(model(one)).T @ norm(model(two)) / BATCH
    diagonal = torch.diagonal(c)
    loss = (diagonal - 1).square().sum() + 0.0051 * (c.square().sum() - diagonal.square().sum())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
