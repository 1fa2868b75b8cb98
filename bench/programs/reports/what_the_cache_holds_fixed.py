"""nvidia-smi climbs over the first batches and never goes back: a leak? (discuss.pytorch.org/t/80645)"""
import random
import torch
from torch import nn
from torchvision.models import resnet18


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        net = resnet18()
        self.body = nn.Sequential(*list(net.children())[:-2])
        self.head = nn.Conv2d(512, 1, 1)

    def forward(self, x):
        return nn.functional.softplus(self.head(self.body(x))).sum((1, 2, 3))


def batch():
    side = random.choice([192, 224, 256, 288, 320])
    return torch.randn(16, 3, side, side, device="cuda"), 10 * torch.rand(16, device="cuda")


random.seed(0)
net = Counter().cuda()
optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
for step in range(2000):
    x, y = batch()
    loss = nn.functional.smooth_l1_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item(), torch.cuda.memory_allocated() >> 20, "MiB")
