"""checkpoint_sequential with 8 segments of 15 blocks gives back less than half (pytorch#68423)."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

SEGMENTS = 8


class Block(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.body = nn.Sequential(*[
            layer for _ in range(3)
            for layer in (nn.Conv2d(width, width, 3, 1, 1), nn.GroupNorm(8, width), nn.SiLU())])

    def forward(self, x):
        return x + self.body(x)


class Net(nn.Module):
    def __init__(self, depth=15):
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 3, 1, 1)
        self.blocks = nn.Sequential(*[Block() for _ in range(depth)])
        self.head = nn.Conv2d(64, 3, 3, 1, 1)

    def forward(self, x):
        x = self.stem(x)
        x = checkpoint_sequential(self.blocks, SEGMENTS, x, use_reentrant=False)
        return self.head(x)


net = Net().cuda()
optimizer = torch.optim.Adam(net.parameters(), 1e-4)
for step in range(2000):
    clean = torch.rand(8, 3, 256, 256, device="cuda")
    noisy = clean + 0.1 * torch.randn_like(clean)
    loss = nn.functional.l1_loss(net(noisy), clean)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
