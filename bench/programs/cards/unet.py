import torch
from torch import nn
def block(a, b): return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(8, b), nn.SiLU(), nn.Conv2d(b, b, 3, padding=1), nn.GroupNorm(8, b), nn.SiLU())
class Net(nn.Module):
    def __init__(s):
        super().__init__()
        w = [32, 64, 128, 256]
        s.down = nn.ModuleList(block(a, b) for a, b in zip([3] + w, w)); s.up = nn.ModuleList(block(a + b, b) for a, b in zip(w[:0:-1], w[-2::-1])); s.out = nn.Conv2d(32, 3, 1)
    def forward(s, x):
        kept = []
        for i, b in enumerate(s.down):
            x = b(x if i == 0 else nn.functional.max_pool2d(x, 2)); kept.append(x)
        for b, skip in zip(s.up, kept[-2::-1]):
            x = b(torch.cat([nn.functional.interpolate(x, scale_factor=2), skip], 1))
        return s.out(x)
net = Net().cuda(); opt = torch.optim.AdamW(net.parameters())
for _ in range(10):
    with torch.autocast("cuda", torch.bfloat16):
        loss = net(torch.randn(8, 3, 160, 160, device="cuda")).square().mean()
    loss.backward(); opt.step(); opt.zero_grad()
