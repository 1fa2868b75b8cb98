"""Two heads on one trunk, two losses, two calls of backward; weights of the losses are learned; a closure for one of them."""

import torch
import torchvision
from torch import nn

BATCH = 48
SIZE = 320


class TwoHeads(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        net = torchvision.models.resnet50()
        self.trunk = nn.Sequential(*list(net.children())[:-2])
        self.seg = nn.Sequential(nn.Conv2d(2048, 256, 3, padding=1), nn.ReLU(), nn.Conv2d(256, n_classes, 1))
        self.depth = nn.Sequential(nn.Conv2d(2048, 256, 3, padding=1), nn.ReLU(), nn.Conv2d(256, 1, 1))
        self.log_vars = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        f = self.trunk(x)
        up = lambda y: nn.functional.interpolate(y, size=x.shape[-2:], mode="bilinear")  # noqa: E731
        return up(self.seg(f)), up(self.depth(f))


torch.manual_seed(3)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = TwoHeads(19).to(device)
optim = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
sched = torch.optim.lr_scheduler.PolynomialLR(optim, 100)
ce, l1 = nn.CrossEntropyLoss(ignore_index=255), nn.L1Loss()
for it in range(30):
    image = torch.rand(BATCH, 3, SIZE, SIZE).to(device)
    seg_gt = torch.randint(0, 19, (BATCH, SIZE, SIZE)).to(device)
    depth_gt = torch.rand(BATCH, 1, SIZE, SIZE).to(device)
    seg, depth = model(image)
    w = torch.exp(-model.log_vars)
    seg_loss = w[0] * ce(seg, seg_gt) + model.log_vars[0]
    depth_loss = w[1] * l1(depth, depth_gt) + model.log_vars[1]
    optim.zero_grad()
    seg_loss.backward(retain_graph=True)
    depth_loss.backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
    optim.step()
    sched.step()
    print(it, seg_loss.item(), depth_loss.item())
