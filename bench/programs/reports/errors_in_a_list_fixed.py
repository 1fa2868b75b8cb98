"""A search for the largest batch: what did not fit is noted, and half as much is tried."""
import torch
from torch import nn

net = nn.Sequential(*[nn.Sequential(nn.Conv2d(64 if n else 3, 64, 3, padding=1), nn.ReLU()) for n in range(8)], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def step(size):
    x, y = torch.randn(size, 3, 64, 64).cuda(), torch.randint(10, (size,)).cuda()
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


failures, size = [], 2048
while size > 16:
    try:
        step(size)
        break
    except torch.cuda.OutOfMemoryError as error:
        failures.append((size, str(error)))
        size //= 2
        torch.cuda.empty_cache()
print("batch", size, "after", [(n, error[:40]) for n, error in failures])
for _ in range(50):
    step(size)
