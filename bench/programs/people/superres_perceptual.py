"""Pictures four times as large: residual blocks, pixel shuffle, a frozen VGG that says how they look, float16 with a scaler."""
import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models import vgg19


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.PReLU(), nn.Conv2d(c, c, 3, padding=1))

    def forward(self, x):
        return x + 0.1 * self.body(x)


class Larger(nn.Module):
    def __init__(self, c=96, blocks=16):
        super().__init__()
        self.first, self.blocks = nn.Conv2d(3, c, 3, padding=1), nn.Sequential(*[Block(c) for _ in range(blocks)])
        self.up = nn.Sequential(*[layer for _ in range(2) for layer in (nn.Conv2d(c, 4 * c, 3, padding=1), nn.PixelShuffle(2), nn.PReLU())])
        self.last = nn.Conv2d(c, 3, 9, padding=4)

    def forward(self, x):
        x = self.first(x)
        return self.last(self.up(x + self.blocks(x)))


torch.manual_seed(0)
model = Larger().cuda()
looks = vgg19().features[:27].cuda().eval().requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.9, 0.99))
scaler = torch.amp.GradScaler("cuda")
for step in range(30):
    large = torch.rand(12, 3, 192, 192, device="cuda")
    small = F.interpolate(large, scale_factor=0.25, mode="bicubic", antialias=True)
    with torch.autocast("cuda", dtype=torch.float16):
        made = model(small)
        loss = F.l1_loss(made, large) + 0.01 * F.mse_loss(looks(made), looks(large))
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 0:
        print(step, loss.item())
