"""Segmentation with online hard example mining: the loss is taken of pixels whose loss is above a threshold, at most a share of them."""
import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, SIZE, CLASSES = 16, 384, 19


def block(i, o, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True), nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class Net(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.down = nn.ModuleList([block(3, width), block(width, 2 * width, 2), block(2 * width, 4 * width, 2), block(4 * width, 8 * width, 2)])
        self.up = nn.ModuleList([block(12 * width, 4 * width), block(6 * width, 2 * width), block(3 * width, width)])
        self.head = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x):
        kept = []
        for it in self.down:
            x = it(x)
            kept.append(x)
        for it, skip in zip(self.up, kept[-2::-1]):
            x = it(torch.cat([F.interpolate(x, size=skip.shape[2:], mode="bilinear", align_corners=False), skip], 1))
        return self.head(x)


def hard_pixels(logits, labels, threshold=0.7):
    flat = logits.permute(0, 2, 3, 1).reshape(-1, CLASSES)
    labels = labels.reshape(-1)
    with torch.no_grad():
        confidence = flat.softmax(1).gather(1, labels[:, None]).squeeze(1)
    hard = confidence < threshold
    return F.cross_entropy(flat[hard], labels[hard])


torch.manual_seed(0)
model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=12, power=0.9)
for step in range(12):
    images = torch.randn(BATCH, 3, SIZE, SIZE, device="cuda")
    labels = torch.randint(CLASSES, (BATCH, SIZE, SIZE), device="cuda")
    loss = hard_pixels(model(images), labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 4 == 0:
        print(f"step {step} loss {loss.item():.4f}")
