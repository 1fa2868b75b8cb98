"""Detection of one class: the loss asks for more memory than there is; with three classes it ran (Open3D-ML#344)."""
import torch
from torch import nn


class Pillars(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.classes = classes
        self.body = nn.Sequential(nn.Conv2d(64, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 128, 3, 1, 1), nn.ReLU())
        self.scores = nn.Conv2d(128, classes, 1)
        self.boxes = nn.Conv2d(128, 7, 1)

    def forward(self, x):
        x = self.body(x)
        return self.scores(x).permute(0, 2, 3, 1).reshape(-1, self.classes), self.boxes(x).permute(0, 2, 3, 1).reshape(-1, 7)


def focal_loss(pred, target, gamma=2.0, alpha=0.25):
    sigmoid = pred.sigmoid()
    if pred.shape[1] > 1:
        target = nn.functional.one_hot(target, pred.shape[1] + 1)[:, : pred.shape[1]]
    target = target.type_as(pred).reshape(len(pred), -1)
    pt = (1 - sigmoid) * target + sigmoid * (1 - target)
    weight = (alpha * target + (1 - alpha) * (1 - target)) * pt.pow(gamma)
    return (nn.functional.binary_cross_entropy_with_logits(pred.expand_as(weight), target.expand_as(weight), reduction="none") * weight).mean()


net = Pillars(1).cuda()
optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
for step in range(1000):
    cloud = torch.randn(1, 64, 400, 400, device="cuda")
    target = torch.randint(2, (40000,), device="cuda")
    boxes = torch.randn(40000, 7, device="cuda")
    scores, found = net(cloud)
    loss = focal_loss(scores, target) + nn.functional.smooth_l1_loss(found, boxes)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
